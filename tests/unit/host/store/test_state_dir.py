"""The state directory's own files, when they cannot be written."""

from pathlib import Path

import pytest
from hotbay.errors import CapacityError
from hotbay.store.state_dir import StateDirectory


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
