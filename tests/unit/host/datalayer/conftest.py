"""What work costs, whatever the machine."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

Calls = Callable[[Callable[[], object]], int]


@pytest.fixture
def calls() -> Calls:
    """How many functions of Python run in some work."""

    def count_in(work: Callable[[], object]) -> int:
        count = 0

        def note(frame: FrameType, event: str, arg: object) -> None:
            nonlocal count
            count += event == "call"

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            work()
        finally:
            sys.setprofile(before)
        return count

    return count_in
