"""The state directory's own files, when they cannot be written or are not what was written."""

from pathlib import Path

import pytest
from hotbay.errors import CapacityError, InputError
from hotbay.store.state_dir import GENERATION_MAX, StateDirectory


def test_number_that_cannot_be_kept_is_not_given_and_is_tried_again(tmp_path: Path) -> None:
    state = StateDirectory.open(tmp_path / "state")
    in_the_way = tmp_path / "state" / "generation"
    in_the_way.mkdir()
    for _ in range(2):
        with pytest.raises(CapacityError, match="generation cannot be written") as caught:
            state.next_generation()
    assert "tried again by itself" in caught.value.hint
    in_the_way.rmdir()
    assert state.next_generation() == 1
    state.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"-1",
        b"+5",
        b"1_000",
        b"0x10",
        b"7.5",
        b"one",
        b"\xff\xfe",
        "٣".encode(),
        b"%d" % (GENERATION_MAX + 1),
        b"9" * 10_000,
    ],
)
def test_number_that_is_none_or_out_of_range_is_refused_with_the_range(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "generation").write_bytes(content)
    with pytest.raises(InputError, match="generation does not hold a number from 0 to") as caught:
        StateDirectory.open(tmp_path)
    assert "above any that was used" in caught.value.hint
    assert (tmp_path / "generation").read_bytes() == content
    (tmp_path / "generation").write_bytes(b"7")
    state = StateDirectory.open(tmp_path)
    assert state.next_generation() == 8
    state.close()


@pytest.mark.parametrize("content", [b"0", b"12\n", b"%d" % GENERATION_MAX])
def test_number_in_range_goes_on(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "generation").write_bytes(content)
    state = StateDirectory.open(tmp_path)
    assert state.next_generation() == int(content) + 1
    state.close()


def test_folder_where_the_number_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "generation").mkdir()
    with pytest.raises(InputError, match="cannot be used"):
        StateDirectory.open(tmp_path)
