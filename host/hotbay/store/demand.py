"""Which things were asked for while those that nothing needs are removed: what somebody relies on by now stays.

Calls may overlap, from any threads.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hotbay.errors import CapacityError

__all__ = ["DemandWatch"]


class DemandWatch:
    """See the module. Things are known by their names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: set[str] | None = None

    def note(self, name: str) -> None:
        """Somebody asks for it, and relies on what is found."""
        with self._lock:
            if self._asked is not None:
                self._asked.add(name)

    @contextmanager
    def collection(self) -> Iterator[None]:
        """The time in which things are removed. Raises CapacityError UNAVAILABLE while another one is under way."""
        with self._lock:
            if self._asked is not None:
                raise CapacityError(
                    "UNAVAILABLE", "the store is being collected already", hint="wait until that has ended"
                )
            self._asked = set()
        try:
            yield
        finally:
            with self._lock:
                self._asked = None

    @contextmanager
    def held(self, name: str) -> Iterator[bool]:
        """Whether a thing may go: nobody asked for it since the collection began. Who asks now waits for the end of this."""
        with self._lock:
            yield self._asked is not None and name not in self._asked
