"""What one process is told of requests without being asked: where they go, that they were withdrawn, how they are answered.

Everything of one tick goes out together. Nobody waits for it, and what a process does not take stops no request. Of a response
that goes on there is one entry that the newest facts replace, so that a request never has more than one waiting; the end of a
response is kept while the process does not read, up to `MAX_ENDS` of them, and told later. What is told of responses carries
the fields of the request that the type declares, but for its prompt and its messages: they crossed before, and are long.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from hotbay_sdk.protocol import ErrorCode, Method, Value, ValueRefusedError

from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.errors import HostError
from hotbay.rpc.faults import UnsendableError
from hotbay.rpc.leases import Generation
from hotbay.scheduling.batch import notice_columns
from hotbay.scheduling.binding import Point
from hotbay.scheduling.calls import BULKY_FIELDS, MAX_BATCH
from hotbay.scheduling.fields import request_field
from hotbay.scheduling.plan import Learner
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.statistics import HOST_ERROR, CallCounters

__all__ = ["Notices", "Pick", "Views", "make_short_fields"]

logger = logging.getLogger(__name__)

MAX_ENDS: Final = 4096
"""Ends of responses that wait for a process which does not read; of more the oldest are not told."""
AGAIN_AFTER_S: Final = 0.05
"""Until a process that does not read is told again: it is replaced when it stays so."""

_METHODS: Final[Mapping[Point, Method]] = {
    Point.RESPONSE_HEADERS: Method.RESPONSE_HEADERS,
    Point.RESPONSE_BODY: Method.RESPONSE_BODY,
}


class Pick(NamedTuple):
    """Where a request goes: ids of endpoints, the one that it is sent to first; the primary profile; all results."""

    targets: list[str]
    profile: str
    results: dict[str, list[str] | None]


class Views(Protocol):
    """What a process already knows of the endpoints."""

    def view(self, snapshot: Snapshot, reads: tuple[str, ...], *, one_way: bool = False) -> list[object]:
        """The view argument of the next message."""

    def forget_view(self) -> None:
        """Send everything again."""


class _Sent(NamedTuple):
    """A request is sent somewhere, or did not come back with a first byte."""

    request: InferenceRequest
    pick: Pick


class _Response(NamedTuple):
    """What is told of a response. `told` is the wire's map; `is_end`: it is not left out."""

    request: InferenceRequest
    told: dict[str, Value]
    is_end: bool


Entry = _Sent | _Response
Key = tuple[int, str]


class Notices:
    """See the module. Lives on the loop that made it."""

    __slots__ = ("_counters", "_generation", "_loop", "_responses", "_scheduled", "_sent", "_snapshot", "_views")

    def __init__(self, generation: Generation, views: Views, counters: CallCounters) -> None:
        self._generation = generation
        self._views = views
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._snapshot: Snapshot | None = None
        self._sent: dict[tuple[Learner, bool], list[Entry]] = {}
        self._responses: dict[Learner, dict[Key, _Response]] = {}

    @property
    def waiting(self) -> int:
        """Entries of responses that are not told yet."""
        return sum(len(entries) for entries in self._responses.values())

    def sent(
        self, learner: Learner, request: InferenceRequest, pick: Pick, snapshot: Snapshot, *, withdrawn: bool = False
    ) -> None:
        """Tell where a request goes, or that nothing of an answer came from there. `snapshot` is the current one."""
        self._snapshot = snapshot
        self._sent.setdefault((learner, withdrawn), []).append(_Sent(request, pick))
        self._schedule()

    def response(self, listener: Learner, request: InferenceRequest, told: dict[str, Value], *, is_end: bool) -> None:
        """Tell of a response; what was not told yet of this one is replaced, being less."""
        entries = self._responses.setdefault(listener, {})
        key = (id(request), str(told.get("endpoint")))
        entries[key] = _Response(request, told, is_end)
        if is_end and len(entries) > MAX_ENDS:
            del entries[next(iter(entries))]
            self._failed(listener, str(ErrorCode.RESOURCE_EXHAUSTED))
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        sent, self._sent = self._sent, {}
        for (learner, withdrawn), entries in sent.items():
            for start in range(0, len(entries), MAX_BATCH):
                self._send(learner, entries[start : start + MAX_BATCH], withdrawn=withdrawn)
        self._snapshot = None
        responses, self._responses = self._responses, {}
        for listener, told in responses.items():
            kept = self._tell_responses(listener, list(told.values()))
            if kept:
                self._keep_ends(listener, kept)

    def _tell_responses(self, listener: Learner, entries: Sequence[_Response]) -> Sequence[_Response]:
        """Tell; what the process has no room for now."""
        for start in range(0, len(entries), MAX_BATCH):
            if not self._send(listener, entries[start : start + MAX_BATCH]):
                return entries[start:]
        return ()

    def _keep_ends(self, listener: Learner, entries: Sequence[_Response]) -> None:
        ends = [entry for entry in entries if entry.is_end]
        if not ends or self._generation.client.fault is not None:
            return
        kept = self._responses.setdefault(listener, {})
        kept.update({(id(entry.request), str(entry.told.get("endpoint"))): entry for entry in ends})
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(AGAIN_AFTER_S, self._flush)

    # -- one message -----------------------------------------------------------------------------

    def _send(self, learner: Learner, entries: Sequence[Entry], *, withdrawn: bool = False) -> bool:
        """Send one message; false when the process had no room for it."""
        try:
            self._notify(learner, entries, withdrawn=withdrawn)
        except (UnsendableError, ValueRefusedError):
            self._singly(learner, entries, str(ErrorCode.FRAME_TOO_LARGE), withdrawn=withdrawn)
        except HostError as error:
            if error.code == ErrorCode.RESOURCE_EXHAUSTED and learner.binding.point is not Point.PRE_REQUEST:
                return False
            self._views.forget_view()
            self._failed(learner, error.code)
        except Exception:
            # Named boundary: columns are made of what clients sent.
            logger.exception("notice_not_encoded", extra={"plugin": self._generation.client.label})
            self._singly(learner, entries, HOST_ERROR, withdrawn=withdrawn)
        return True

    def _notify(self, learner: Learner, entries: Sequence[Entry], *, withdrawn: bool) -> None:
        notify = self._generation.client.notify
        requests = [entry.request for entry in entries]
        point = learner.binding.point
        if point is Point.PRE_REQUEST:
            snapshot = self._snapshot
            assert snapshot is not None, "it comes with each notice"
            view = self._views.view(snapshot, learner.columns, one_way=True)
            picks = [list(entry.pick) for entry in entries if isinstance(entry, _Sent)]
            args = [learner.handle, view, notice_columns(requests, learner.fields), picks]
            notify(Method.PRE_REQUEST, [*args, True] if withdrawn else args, epoch=snapshot.epoch)
        else:
            told = [entry.told for entry in entries if isinstance(entry, _Response)]
            notify(_METHODS[point], [learner.handle, _without_bodies(requests, learner.fields), told])

    def _singly(self, learner: Learner, entries: Sequence[Entry], code: str, *, withdrawn: bool) -> None:
        """One request may be at fault: tell of each alone; of one that is alone nothing is told."""
        self._views.forget_view()
        if len(entries) > 1:
            for entry in entries:
                self._send(learner, [entry], withdrawn=withdrawn)
        else:
            self._failed(learner, code)

    def _failed(self, learner: Learner, code: str) -> None:
        self._counters.plugin_error(learner.binding.point, learner.binding.ref, code)
        self._counters.forgive()


def make_short_fields(request: InferenceRequest, fields: Iterable[str]) -> None:
    """Have the request make what is told of it in these fields: it has them then without its body, too."""
    for name in fields:
        if name not in BULKY_FIELDS:
            request_field(request, name)


def _without_bodies(requests: Sequence[InferenceRequest], fields: Sequence[str]) -> list[object]:
    """The `requests` argument with nothing in the fields that are as long as a request's body."""
    short = [name for name in fields if name not in BULKY_FIELDS]
    size, deadlines, traces, values, data = notice_columns(requests, short)
    assert isinstance(values, dict), "fields are a map"
    nothing = {name: [None] * len(requests) for name in fields if name in BULKY_FIELDS}
    return [size, deadlines, traces, values | nothing, data]
