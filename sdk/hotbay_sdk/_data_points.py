"""Extension points of the data layer: extractors, sources, discoveries. Imported by what uses one of them."""

from __future__ import annotations

from hotbay_sdk._points import UndefinedError, _Instance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping
    from typing import Any


class Extractor(_Instance):
    """Turns what a source brings of one endpoint into attributes of that endpoint.

    The type declares its `payload`, and in `attributes` what it may return. Calls for different endpoints follow each
    other, for one endpoint in the order of its polls.
    """

    _hotbay_point = ("extract", ("extract",))

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
        raise UndefinedError


class EventExtractor(_Instance):
    """Turns events, of endpoints or of objects, into attributes of endpoints.

    Events come one at a time and in order; one at which a process died is given to its successor again, with the same number.
    """

    _hotbay_point = ("event_extract", ("extract",))

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
        raise UndefinedError


class NotificationSource(_Instance):
    """Sees events before the extractors of its source do, and may change or drop them.

    Events come one at a time and in order, as to an `EventExtractor`.
    """

    _hotbay_point = ("source", ("notify",))

    def notify(self, event: Mapping[str, Any]) -> Mapping[str, object] | Awaitable[Mapping[str, object] | None] | None:
        """Return the event, as it is or changed, or None to drop it. Raising drops it, too, and is counted.

        What may be changed is the `type`, the `object`, and the labels of an `endpoint`.
        """
        raise UndefinedError


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
        raise UndefinedError

    def delete(self, key: str) -> None:
        """The object `namespace/name`, or `name` of one without namespace, is gone. Raises as `upsert`."""
        raise UndefinedError

    def ready(self) -> None:
        """Everything that is there now was told: extractors are told of it from now on, and what went since an earlier run.

        Calls after the first do nothing. A run without one is heard in nothing, and after 15 s counts as failing.
        """
        raise UndefinedError

    def wait(self, seconds: float) -> bool:
        """Wait so long, and less when the run is over; true when it is, and `watch` returns."""
        raise UndefinedError


class WatchSource(_Instance):
    """Watches objects of one kind by itself, and tells of them in order; extractors of their events stand behind it.

    The type declares the kind as its `payload`, `object:GROUP/VERSION/KIND`.
    """

    _hotbay_point = ("watch", ("watch",))

    def watch(self, notifier: ObjectNotifier) -> Iterable[object] | None:
        """Tell all objects, then that this was all (`ready`), then what changes, until `context.cancelled`.

        Runs as `Discovery.discover` does, and is begun and ended as that: beside the run of the version before it, which is
        heard until this one's `ready`. Extractors are told then what differs from what they were told before: an object
        that says the same is no event, and one that this run did not name goes. From then on each change is one event, in
        order. An extractor that is late, with more than 256 of them or 16 MiB waiting for it, is told the newest of each
        object alone.
        """
        raise UndefinedError


class PollingSource(_Instance):
    """Asks endpoints for data, one at a time each; extractors of its `payload` stand behind it."""

    _hotbay_point = ("poll", ("poll",))

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
        raise UndefinedError


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
        raise UndefinedError

    def delete(self, endpoint_id: str) -> None:
        """An endpoint is gone. Raises as `upsert`."""
        raise UndefinedError

    def ready(self) -> None:
        """Everything that is there now was told: it counts from now on, and what an earlier run told beside is gone.

        Calls after the first do nothing. A run without one is heard in nothing, and after 15 s counts as failing.
        """
        raise UndefinedError

    def wait(self, seconds: float) -> bool:
        """Wait so long, and less when the run is over; true when it is, and `discover` returns."""
        raise UndefinedError


class Discovery(_Instance):
    """Finds the endpoints that there are."""

    _hotbay_point = ("discover", ("discover",))

    def discover(self, notifier: DiscoveryNotifier) -> Iterable[object] | None:
        """Tell all endpoints, then that this was all (`ready`), then what changes, until `context.cancelled`.

        Runs in a thread of its own, beside all other calls. May be a generator, which yields when it has told something
        and is closed at a `yield` when the run is over; its items mean nothing. Nothing is deleted before `ready` that an
        earlier run had told, so that a restart never empties the pool. Returning or raising ends the run: the host keeps
        what was told, and begins another one after a pause. Once the run is over it has to return within 10 s: the
        process is replaced otherwise.
        """
        raise UndefinedError
