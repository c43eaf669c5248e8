"""The lock goes from one host to the next and back, and no generation number is given twice."""

from pathlib import Path

import pytest
from hotbay.errors import CapacityError, InputError
from hotbay.store.state_dir import StateDirectory


def test_second_host_is_refused_naming_the_first(tmp_path: Path) -> None:
    first = StateDirectory.open(tmp_path)
    with pytest.raises(CapacityError, match=r"in use by the host with pid \d+"):
        StateDirectory.open(tmp_path)
    first.close()
    StateDirectory.open(tmp_path).close()


def test_released_lock_is_the_successors_and_numbers_go_on(tmp_path: Path) -> None:
    first = StateDirectory.open(tmp_path)
    given = [first.next_generation() for _ in range(3)]
    first.release_lock()
    first.release_lock()
    with pytest.raises(CapacityError, match="handed to another host"):
        first.next_generation()
    successor = StateDirectory.open(tmp_path)
    assert successor.next_generation() > max(given)
    with pytest.raises(CapacityError, match="in use by the host"):
        first.reacquire()
    with pytest.raises(CapacityError, match="handed to another host"):
        first.next_generation()
    successor.close()
    first.close()


def test_lock_comes_back_when_the_successor_is_gone(tmp_path: Path) -> None:
    first = StateDirectory.open(tmp_path)
    given = [first.next_generation()]
    first.release_lock()
    successor = StateDirectory.open(tmp_path)
    given += [successor.next_generation() for _ in range(2000)]
    successor.close()
    first.reacquire()
    first.reacquire()
    given.append(first.next_generation())
    assert len(set(given)) == len(given)
    assert given[-1] == max(given)
    with pytest.raises(CapacityError, match="in use by the host"):
        StateDirectory.open(tmp_path)
    first.close()


def test_numbers_that_cannot_be_read_leave_the_lock_free(tmp_path: Path) -> None:
    first = StateDirectory.open(tmp_path)
    first.next_generation()
    first.release_lock()
    good = (tmp_path / "generation").read_bytes()
    (tmp_path / "generation").write_bytes(b"many")
    for take in (first.reacquire, lambda: StateDirectory.open(tmp_path)):
        with pytest.raises(InputError, match="does not hold a number"):
            take()
    (tmp_path / "generation").write_bytes(good)
    StateDirectory.open(tmp_path).close()
    first.reacquire()
    first.close()
