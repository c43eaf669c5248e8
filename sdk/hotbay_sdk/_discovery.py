"""Runs `discover` and `watch` methods and writes what they tell: records, each a length (u32, big endian) and one value.

`["upsert", endpoint or object]`, `["delete", id or key]` and `["ready"]`. Knows no link: `testing` has another way for the
same records.
"""

from __future__ import annotations

import struct
from _thread import get_ident
from collections.abc import Iterable

from hotbay_sdk._data_points import DiscoveryNotifier, ObjectNotifier
from hotbay_sdk._errors import Failed, attempt, fault_of
from hotbay_sdk.protocol.messages import PIECE_BYTES, CallError, ErrorCode, Executed
from hotbay_sdk.protocol.values import Encoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Final, Protocol

    from hotbay_sdk._instances import Instance

    class Way(Protocol):
        """Where records go."""

        @property
        def over(self) -> bool:
            """Whether nobody wants any more."""

        def send(self, data: bytes) -> None:
            """Take an encoded record; nothing when it is over."""

        def wait(self, seconds: float) -> bool:
            """Wait until it is over, at most so long; whether it is."""


LENGTH: Final = struct.Struct(">I")
MAX_RECORD_BYTES: Final = PIECE_BYTES
"""Longest value of a record: labels of an endpoint are a few KiB, and few objects are longer."""


class _Notifier:
    """What the notifiers of both methods have in common; for the thread that makes it."""

    def __init__(self, way: Way, point: str) -> None:
        self._way = way
        self._point = point
        self._thread = get_ident()
        self._pack = Encoder().pack_checked
        self._is_ready = False

    def ready(self) -> None:
        """See `DiscoveryNotifier` and `ObjectNotifier`."""
        if not self._is_ready:
            self._tell(["ready"])
            self._is_ready = True

    def wait(self, seconds: float) -> bool:
        """See `DiscoveryNotifier` and `ObjectNotifier`."""
        self._check_thread()
        return self._way.wait(seconds)

    def _tell(self, record: list[object]) -> None:
        self._check_thread()
        body = self._pack(record)
        if len(body) > MAX_RECORD_BYTES:
            raise ValueError(f"{record[0]}: {len(body)} bytes, at most {MAX_RECORD_BYTES} cross")
        self._way.send(LENGTH.pack(len(body)) + body)

    def _check_thread(self) -> None:
        if get_ident() != self._thread:
            raise RuntimeError(
                f"a notifier is for the thread that runs {self._point} alone: events keep their order that way"
            )


class Endpoints(_Notifier, DiscoveryNotifier):
    """The notifier of one `discover`."""

    def upsert(self, endpoint: Mapping[str, object]) -> None:
        """See `DiscoveryNotifier`."""
        self._tell(["upsert", dict(endpoint)])

    def delete(self, endpoint_id: str) -> None:
        """See `DiscoveryNotifier`."""
        self._tell(["delete", endpoint_id])


class Objects(_Notifier, ObjectNotifier):
    """The notifier of one `watch`."""

    def upsert(self, obj: Mapping[str, object]) -> None:
        """See `ObjectNotifier`."""
        self._tell(["upsert", dict(obj)])

    def delete(self, key: str) -> None:
        """See `ObjectNotifier`."""
        self._tell(["delete", key])


NOTIFIERS: Final[Mapping[str, type[_Notifier]]] = {"discover": Endpoints, "watch": Objects}
"""By the point, whose method has its name."""


def follow_run(instance: Instance, point: str, way: Way) -> object:
    """Run the method of `point`, its name, until it returns or `way` is over; None, or a `CallError`. SystemExit passes."""
    outcome = attempt(_run, getattr(instance.object, point), NOTIFIERS[point](way, point), way)
    if isinstance(outcome, Failed):
        instance.context.logger.fault(outcome.fault)
        return fault_of(outcome.fault)
    if way.over:
        return CallError(ErrorCode.CANCELLED, "the run is over", executed=Executed.YES)
    return None


def _run(tell: Callable[[_Notifier], object], notifier: _Notifier, way: Way) -> None:
    steps = tell(notifier)
    if not isinstance(steps, Iterable):
        return
    iterator = iter(steps)
    try:
        while not way.over and next(iterator, _END) is not _END:
            pass
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


_END: Final = object()
