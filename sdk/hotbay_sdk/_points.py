"""The extension points: what a plugin type may answer.

A class takes part in a point by deriving from its class and defining one of its methods. A batch
method is preferred over the per-request one. Any method but `discover` and `watch` may be `async def`. Calls of one process
never overlap, but those of types that say so; `__init__`, `check_ready`, `close`, `discover` and `watch` may run while
other instances answer calls.
"""

from __future__ import annotations

from hotbay_sdk._views import Endpoint, Endpoints, Request, ScoredEndpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping, Sequence
    from typing import Any

    from hotbay_sdk._context import Context

    ProfileResults = Mapping[str, Sequence[str] | None]


class _UndefinedError(Exception):
    """A method of a point that the type does not define was called; declaring such a type is refused before."""


class _Instance:
    """What every plugin type inherits: an `__init__` that keeps its arguments."""

    def __init__(self, context: Context, parameters: Any = None) -> None:
        self.context = context
        self.parameters = parameters


class Filter(_Instance):
    """Narrows the candidates of a request.

    Filters run before the scorers of a profile; what a filter drops, later steps never see.
    """

    def keep(self, request: Request, endpoint: Endpoint) -> bool | Awaitable[bool]:
        """Say whether `endpoint` may serve `request`; called for candidates only.

        Raising fails this filter for this request alone.
        """
        raise _UndefinedError

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
        """Say it for B requests and E rows at once.

        Returns:
            B rows of E items, truthy to keep: a 2-D buffer, or a sequence of buffers or sequences.
            Values outside the candidates are ignored.

        Raising fails this filter for the whole batch.
        """
        raise _UndefinedError


class Scorer(_Instance):
    """Rates the candidates of a request, each in [0, 1]; higher is better.

    The host clamps what is outside and counts a value that is not finite as 0.
    """

    def score(self, request: Request, endpoint: Endpoint) -> float | Awaitable[float]:
        """Rate one candidate. A result that is no number (None, text, a bool) counts as not finite.

        Raising fails this scorer for this request alone.
        """
        raise _UndefinedError

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
        """Rate E rows for each of B requests.

        A formula that normalises must do so over the candidates alone: `endpoints.mask(b)`.

        Returns:
            B rows of E numbers: a 2-D buffer (numpy float32 is cheapest), a flat buffer of B·E, or a
            sequence of buffers or sequences. Values outside the candidates are ignored.

        Raising fails this scorer for the whole batch; so does a wrong length (BAD_RESULT).
        """
        raise _UndefinedError


class Picker(_Instance):
    """Chooses among the scored candidates of a request."""

    def pick(
        self, request: Request, candidates: Sequence[ScoredEndpoint], n: int
    ) -> Sequence[ScoredEndpoint | int] | Awaitable[Sequence[ScoredEndpoint | int]]:
        """Choose at most `n` candidates, best first.

        Args:
            request: the request.
            candidates: every candidate in row order; never empty.
            n: at least 1.

        Returns:
            Candidates, or their row numbers. Repetitions and rows that are no candidates are dropped.
        """
        raise _UndefinedError


class ProfileHandler(_Instance):
    """Chooses which profiles run for a request and merges their results.

    A result maps a profile's name to endpoint ids, best first, or to None for a profile that failed.
    """

    def pick(
        self, request: Request, profiles: Sequence[str], results: ProfileResults
    ) -> Sequence[str] | Awaitable[Sequence[str]]:
        """Name the profiles to run next; called again with their results until it names none."""
        raise _UndefinedError

    def process(
        self, request: Request, results: ProfileResults
    ) -> tuple[str, ProfileResults] | Awaitable[tuple[str, ProfileResults]]:
        """Merge the results.

        Returns:
            The primary profile's name and the results to go on with, which name that profile.
        """
        raise _UndefinedError


class DataProducer(_Instance):
    """Makes data columns for the types that consume them. Columns are declared in `produces`."""

    def produce(self, request: Request, endpoints: Endpoints) -> Mapping[str, object] | Awaitable[Mapping[str, object]]:
        """Make one request's data.

        Returns:
            Every declared column: E numbers for scope row, one number for scope request.

        Raising fails this producer for this request alone.
        """
        raise _UndefinedError

    def produce_batch(
        self, requests: Sequence[Request], endpoints: Endpoints
    ) -> Mapping[str, object] | Awaitable[Mapping[str, object]]:
        """Make the data of B requests at once.

        Returns:
            Every declared column: B rows of E numbers for scope row, B numbers for scope request, in
            the forms that `Scorer.score_batch` may return.

        Raising fails this producer for the whole batch.
        """
        raise _UndefinedError


class PreRequest(_Instance):
    """Learns where requests are sent, once for each endpoint that gets one. Nobody waits for it, and it answers nothing."""

    def pre_request(self, request: Request, targets: Sequence[str], endpoints: Endpoints) -> Awaitable[None] | None:
        """Take note.

        Args:
            request: the request.
            targets: ids of the endpoints that it is being sent to, the primary one first.
            endpoints: the view of that moment.

        Raising is logged and has no other effect.
        """
        raise _UndefinedError


class Extractor(_Instance):
    """Turns what a source brings of one endpoint into attributes of that endpoint.

    The type declares its `payload`, and in `attributes` what it may return. Calls for different endpoints follow each
    other, for one endpoint in the order of its polls.
    """

    def extract(
        self, payload: Any, endpoint: Mapping[str, Any]
    ) -> Mapping[str, object] | Awaitable[Mapping[str, object]]:
        """Read one payload.

        Args:
            payload: `metrics`: name of a sample → list of [labels, value], for the declared `families` that the page has;
                `models`, `json`: what the endpoint answered; `text` and `bytes`: its body.
            endpoint: `id`, `name`, `address`, `port`, `scheme`, `labels`, `state`, `weight`.

        Returns:
            Declared attributes by name; None takes one away, what is left out stays as it is. A number for kind `f32`, a
            whole number for `i64`, for `value` a bool, number, text, bytes, list or map of at most 64 KiB.

        Raising leaves the attributes as they are, and is counted.
        """
        raise _UndefinedError


class EventExtractor(_Instance):
    """Turns events, of endpoints or of objects, into attributes of endpoints.

    Events come one at a time and in order; one at which a process died is given to its successor again, with the same number.
    """

    def extract(
        self, event: Mapping[str, Any]
    ) -> Mapping[str, Mapping[str, object]] | Awaitable[Mapping[str, Mapping[str, object]]]:
        """Read one event.

        Args:
            event: `number`, from 1 in the order of the events; `type`, `add_or_update` or `delete`; by the declared payload
                `endpoint`, as for an `Extractor`, or `kind` (`GROUP/VERSION/KIND`), `key` (`namespace/name`) and `object`.

        Returns:
            Endpoint id → declared attributes, as of an `Extractor`. Endpoints that are gone are left out by the host.

        Raising is counted; the event counts as read.
        """
        raise _UndefinedError


class NotificationSource(_Instance):
    """Sees events before the extractors of its source do, and may change or drop them.

    Events come one at a time and in order, as to an `EventExtractor`.
    """

    def notify(self, event: Mapping[str, Any]) -> Mapping[str, object] | Awaitable[Mapping[str, object] | None] | None:
        """Return the event, as it is or changed, or None to drop it. Raising drops it, too, and is counted.

        What may be changed is the `type`, the `object`, and the labels of an `endpoint`.
        """
        raise _UndefinedError


class ObjectNotifier:
    """Where a `WatchSource` says what it sees. Only the thread that runs `watch` may call it: order is what counts.

    Calls wait while the host does not read: it reads so much a second, and no more while 128 MiB of objects wait for an
    extractor. When the run is over they do nothing.
    """

    def upsert(self, obj: Mapping[str, object]) -> None:
        """An object exists, and is this from now on.

        Args:
            obj: `apiVersion` and `kind` as the type's payload says; `metadata` with a `name`, and perhaps a `namespace`; and
                anything beside. What the host cannot use is told in its log, counts as a failed call, and leaves the last
                good form of that object in force.

        Raises:
            ValueError: it holds what cannot cross, or is longer than 64 KiB.
            RuntimeError: another thread than that of `watch` calls.
        """
        raise _UndefinedError

    def delete(self, key: str) -> None:
        """The object `namespace/name`, or `name` of one without namespace, is gone. Raises as `upsert`."""
        raise _UndefinedError

    def ready(self) -> None:
        """Everything that is there now was told: extractors are told of it from now on, and what went since an earlier run.

        Calls after the first do nothing. A run without one is heard in nothing, and after 15 s counts as failing.
        """
        raise _UndefinedError

    def wait(self, seconds: float) -> bool:
        """Wait so long, and less when the run is over; true when it is, and `watch` returns."""
        raise _UndefinedError


class WatchSource(_Instance):
    """Watches objects of one kind by itself, and tells of them in order; extractors of their events stand behind it.

    The type declares the kind as its `payload`, `object:GROUP/VERSION/KIND`.
    """

    def watch(self, notifier: ObjectNotifier) -> Iterable[object] | None:
        """Tell all objects, then that this was all (`ready`), then what changes, until `context.cancelled`.

        Runs as `Discovery.discover` does, and is begun and ended as that: beside the run of the version before it, which is
        heard until this one's `ready`. Extractors are told then what differs from what they were told before: an object
        that says the same is no event, and one that this run did not name goes. From then on each change is one event, in
        order. An extractor that is late, with more than 256 of them or 16 MiB waiting for it, is told the newest of each
        object alone.
        """
        raise _UndefinedError


class PollingSource(_Instance):
    """Asks endpoints for data, one at a time each; extractors of its `payload` stand behind it."""

    def poll(self, endpoint: Mapping[str, Any]) -> object | Awaitable[object]:
        """Ask one endpoint. Called for each one every `interval_s` of the type, and not while the host waits for an answer.

        Args:
            endpoint: `id`, `name`, `address`, `port`, `scheme`, `labels`, `state`, `weight`.

        Returns:
            By the declared payload: `metrics`, a whole page in Prometheus' text form, as text or bytes; `models`, a list of
            `{"id": …}` or `{"id": …, "parent": …}`; `json`, what crosses: None, bool, numbers, text, bytes, lists and maps
            of these; `text`; `bytes`. At most 1 MiB, of `models` and `json` 256 KiB.

        Raising, or being late (about a second), is a failed poll: it is counted, and what is known stays.
        """
        raise _UndefinedError


class DiscoveryNotifier:
    """Where a `Discovery` says what it found. Only the thread that runs `discover` may call it: order is what counts.

    Calls wait while the host does not read. When the run is over they do nothing.
    """

    def upsert(self, endpoint: Mapping[str, object]) -> None:
        """An endpoint exists, with this from now on.

        Args:
            endpoint: `id` as `namespace/name`, or `name` and `namespace`; `address`, an IP literal; `port`; and what an
                endpoint file may say beside: `labels`, `state`, `weight`, `metricsHost`, `nodeAddress`. What the host cannot
                use is told in its log, and the endpoint keeps its last good form.

        Raises:
            ValueError: it holds what cannot cross, or is longer than 64 KiB.
            RuntimeError: another thread than that of `discover` calls.
        """
        raise _UndefinedError

    def delete(self, endpoint_id: str) -> None:
        """An endpoint is gone. Raises as `upsert`."""
        raise _UndefinedError

    def ready(self) -> None:
        """Everything that is there now was told: it counts from now on, and what an earlier run told beside is gone.

        Calls after the first do nothing. A run without one is heard in nothing, and after 15 s counts as failing.
        """
        raise _UndefinedError

    def wait(self, seconds: float) -> bool:
        """Wait so long, and less when the run is over; true when it is, and `discover` returns."""
        raise _UndefinedError


class Discovery(_Instance):
    """Finds the endpoints that there are."""

    def discover(self, notifier: DiscoveryNotifier) -> Iterable[object] | None:
        """Tell all endpoints, then that this was all (`ready`), then what changes, until `context.cancelled`.

        Runs in a thread of its own, beside all other calls. May be a generator, which yields when it has told something
        and is closed at a `yield` when the run is over; its items mean nothing. Nothing is deleted before `ready` that an
        earlier run had told, so that a restart never empties the pool. Returning or raising ends the run: the host keeps
        what was told, and begins another one after a pause. Once the run is over it has to return within 10 s: the
        process is replaced otherwise.
        """
        raise _UndefinedError


POINTS: Mapping[str, tuple[type, tuple[str, ...]]] = {
    "filter": (Filter, ("keep_batch", "keep")),
    "score": (Scorer, ("score_batch", "score")),
    "pick": (Picker, ("pick",)),
    "profile_handler": (ProfileHandler, ("pick", "process")),
    "produce": (DataProducer, ("produce_batch", "produce")),
    "pre_request": (PreRequest, ("pre_request",)),
    "extract": (Extractor, ("extract",)),
    "event_extract": (EventExtractor, ("extract",)),
    "source": (NotificationSource, ("notify",)),
    "discover": (Discovery, ("discover",)),
    "watch": (WatchSource, ("watch",)),
    "poll": (PollingSource, ("poll",)),
}
"""Point → its class and its methods, preferred first. A profile handler needs both of its methods."""

DATA_POINTS = frozenset({"extract", "event_extract", "source", "discover", "watch", "poll"})
"""Those of the data layer. Both kinds of extractors answer the point `extract` on the wire: their payloads tell them apart."""
