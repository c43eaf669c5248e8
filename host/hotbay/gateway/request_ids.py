"""Request ids: the client's own when it can stand in a log line and a header, otherwise a new one."""

import re
from collections.abc import Callable
from itertools import count

__all__ = ["request_ids"]

# No spaces, quotes or control characters: an id is written to logs and sent upstream as it is.
_SANE = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


def request_ids(prefix: str) -> Callable[[bytes | None], str]:
    """A function from the client's id (or None) to the id to use; new ones are `prefix` and a running number."""
    numbers = count(1)

    def choose(given: bytes | None) -> str:
        if given is not None and _SANE.fullmatch(given):
            return given.decode("ascii")
        return f"{prefix}-{next(numbers):x}"

    return choose
