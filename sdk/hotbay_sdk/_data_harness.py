"""What `testing.PluginHarness` does for types of the data layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, Protocol

from hotbay_sdk._calls import RunningCall
from hotbay_sdk._discovery import LENGTH, follow_run
from hotbay_sdk._dispatch import Dispatcher
from hotbay_sdk.protocol.messages import RUN_METHODS, CallError, ErrorCode, Method
from hotbay_sdk.protocol.values import Value, unpack

ENDPOINT: Mapping[str, object] = {
    "id": "default/a",
    "name": "a",
    "address": "10.0.0.1",
    "port": 8000,
    "scheme": "http",
    "labels": {},
    "state": "active",
    "weight": 1.0,
}
"""What an extractor is told of its endpoint where a test says nothing."""


class _Cancellable(Protocol):
    gave_up: bool


class _Way:
    """Keeps what is told, and lets the test act where the plugin waits."""

    def __init__(self, steps: Sequence[Callable[[], object]], host: _Cancellable) -> None:
        self.events: list[list[Value]] = []
        self._steps = list(steps)
        self._host = host

    @property
    def over(self) -> bool:
        return self._host.gave_up

    def send(self, data: bytes) -> None:
        if not self.over:
            record = unpack(data[LENGTH.size :])
            assert isinstance(record, list)
            self.events.append(record)
            if record == ["ready"] and not self._steps:
                self._host.gave_up = True

    def wait(self, seconds: float) -> bool:
        if not self.over and self._steps:
            self._steps.pop(0)()
        else:
            self._host.gave_up = True
        return self.over


class DataHarness(ABC):
    """Extractors, sources and discoveries of a harness. Methods raise `PluginCallError` for what the plugin raises."""

    _dispatcher: Dispatcher
    _answering: _Cancellable

    @abstractmethod
    def _call(self, method: Method, args: Sequence[object]) -> Value: ...

    @abstractmethod
    def _handle_of(self, name: str) -> list[int]: ...

    @abstractmethod
    def _raise(self, error: CallError) -> NoReturn: ...

    def extract(self, name: str, payload: object, endpoint: Mapping[str, object] = ENDPOINT) -> dict[str, Value]:
        """Attributes that an extractor makes of one payload.

        `endpoint` takes the place of an endpoint `default/a`. Attributes that are not declared are a `PluginCallError`
        BAD_RESULT.
        """
        found = self._call(Method.POLL_EXTRACT, [self._handle_of(name), {**ENDPOINT, **endpoint}, payload])
        assert isinstance(found, dict)
        return found

    def event_extract(self, name: str, event: Mapping[str, object], *, number: int = 1) -> dict[str, Value]:
        """Endpoint id → attributes that an event extractor makes of one event."""
        found = self._call(Method.EVENT_EXTRACT, [self._handle_of(name), number, dict(event)])
        assert isinstance(found, dict)
        return found

    def notify(self, name: str, event: Mapping[str, object], *, number: int = 1) -> dict[str, Value] | None:
        """What a source makes of an event: the event that goes on, or None."""
        found = self._call(Method.SOURCE_NOTIFY, [self._handle_of(name), number, dict(event)])
        assert found is None or isinstance(found, dict)
        return found

    def poll(self, name: str, endpoint: Mapping[str, object] = ENDPOINT) -> Value:
        """What a source's poll of an endpoint brings. `endpoint` as in `extract`."""
        return self._call(Method.SOURCE_POLL, [self._handle_of(name), {**ENDPOINT, **endpoint}])

    def discover(self, name: str, steps: Sequence[Callable[[], object]] = ()) -> list[list[Value]]:
        """Run a discovery in this thread; what it told: `["upsert", endpoint]`, `["delete", id]`, `["ready"]`.

        Each time the plugin waits (`notifier.wait`), the next of `steps` is run in place of the time; a wait after the
        last one ends the run, and so does `ready` where there are none.
        """
        return self._follow(Method.DISCOVER, name, steps)

    def watch(self, name: str, steps: Sequence[Callable[[], object]] = ()) -> list[list[Value]]:
        """Run a source that watches, as `discover` does; what it told: `["upsert", object]`, `["delete", key]`, `["ready"]`."""
        return self._follow(Method.SOURCE_WATCH, name, steps)

    def _follow(self, method: Method, name: str, steps: Sequence[Callable[[], object]]) -> list[list[Value]]:
        call = RunningCall(1, method, float("inf"))
        handle: list[Value] = [*self._handle_of(name)]
        point = RUN_METHODS[method]
        instance = self._dispatcher.begin_run([handle], point, call)
        if isinstance(instance, CallError):
            self._raise(instance)
        before, way = self._answering.gave_up, _Way(steps, self._answering)
        try:
            result = follow_run(instance, point, way)
        finally:
            self._answering.gave_up = before
            instance.runs.remove(call)
        if isinstance(result, CallError) and result.code is not ErrorCode.CANCELLED:
            self._raise(result)
        return way.events
