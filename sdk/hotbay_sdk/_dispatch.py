"""Runs a decoded call against the configured instances. No IO but the plugin's log.

`_serve` feeds it from the links, `testing.PluginHarness` from memory. Hot calls never overlap;
`configure` and `check_ready` run in another thread and wait for the running hot call only before
they close what was dropped. Every fault of an author's code becomes an error of the step and the
request that it concerns; SystemExit alone passes.
"""

from __future__ import annotations

from _thread import allocate_lock

from hotbay_sdk import _lazy, _results, _steps
from hotbay_sdk._batch import NO_VIEW, Batch, HeldView, read_masks, read_requests, take_view
from hotbay_sdk._errors import CallFailedError, Failed, attempt, fault_of
from hotbay_sdk._instances import Instance, Instances, refused
from hotbay_sdk.protocol.calls import POINT_FILTER, POINT_SCORE, REQUEST_SCOPE
from hotbay_sdk.protocol.messages import CallError, ErrorCode, Executed, MalformedMessageError, Method
from hotbay_sdk.protocol.values import ValueRefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hotbay_sdk._async import AsyncRunner
    from hotbay_sdk._plugin import Plugin
    from hotbay_sdk.protocol.connection import Connection
    from hotbay_sdk.protocol.values import Value

_POINT_NAMES = {POINT_FILTER: "filter", POINT_SCORE: "score"}
_CONTROL_TIMEOUT_S = 30.0


class Dispatcher:
    """The configured instances of one process and the calls to them."""

    def __init__(self, *, generation: int, seed: int = 0, log_level: str = "info") -> None:
        self._instances = Instances(generation=generation, seed=seed, log_level=log_level)
        self._held: HeldView | None = None
        self._running = allocate_lock()
        self._runner: AsyncRunner | None = None
        self._handlers: dict[int, Callable[[Sequence[Value], float | None], object]] = {
            Method.RUN: self._run,
            Method.PICK: self._pick,
            Method.PRODUCE: self._produce,
            Method.PROFILE_PICK: self._profile_pick,
            Method.PROFILE_PROCESS: self._profile_process,
            Method.PRE_REQUEST: self._pre_request,
            Method.CONFIGURE: self._configure,
            Method.CHECK_READY: self._check_ready,
        }

    def provide(self, plugin: Plugin) -> None:
        """Take the types of a plugin, before the first call."""
        self._instances.plugin = plugin

    def call(self, method: int, args: Sequence[Value], *, timeout_s: float | None = None) -> object:
        """The result of a hot call, or a `CallError`. `timeout_s` bounds async methods."""
        with self._running:
            return self._answer(method, args, timeout_s)

    def control_call(self, method: int, args: Sequence[Value]) -> object:
        """The result of `configure` or `check_ready`, or a `CallError`; one thread at a time."""
        return self._answer(method, args, _CONTROL_TIMEOUT_S)

    def close(self) -> None:
        """Close every instance, then the asyncio loop if there is one."""
        self._close(self._instances.clear())
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _answer(self, method: int, args: Sequence[Value], timeout_s: float | None) -> object:
        handler = self._handlers.get(method)
        if handler is None:
            return refused(f"method {method} is unknown to this SDK").error
        try:
            return handler(args, timeout_s)
        except CallFailedError as failure:
            return failure.error
        except MalformedMessageError as error:
            return refused(str(error)).error

    # -- hot calls -------------------------------------------------------------------------------

    def _run(self, args: Sequence[Value], timeout_s: float | None) -> object:
        steps, view, candidates, requests = _arguments(args, 4)
        chosen = [self._step(step) for step in _list(steps, "steps")]
        batch = self._batch(view, candidates, requests)
        idle = batch.size == 0 or batch.view.rows == 0
        errors = _steps.StepErrors(batch.size)
        scores: list[bytes] = []
        for index, (point, instance) in enumerate(chosen):
            if point == POINT_SCORE:
                blank = bytes(4 * batch.view.rows)
                rows = (
                    [blank] * batch.size
                    if idle
                    else _steps.score(self._call_of(instance, timeout_s), batch, errors, index)
                )
                scores.extend(rows)
            elif not idle:
                _steps.keep(self._call_of(instance, timeout_s), batch, errors, index)
        bits = batch.packed_masks() if any(point == POINT_FILTER for point, _ in chosen) else None
        return [bits, b"".join(scores), errors.to_wire()]

    def _pick(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, view, candidates, totals, requests, n = _arguments(args, 6)
        instance = self._instances.find(handle, "pick")
        batch = self._batch(view, candidates, requests)
        if not isinstance(totals, bytes) or len(totals) != 4 * batch.size * batch.view.rows:
            raise refused("totals are B x E float32")
        if type(n) is not int:
            raise refused("n is a whole number")
        errors = _steps.StepErrors(batch.size)
        rows = _steps.pick(self._call_of(instance, timeout_s), batch, errors, totals=totals, n=max(1, n))
        return [rows, errors.to_wire()]

    def _produce(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, view, candidates, requests = _arguments(args, 4)
        instance = self._instances.find(handle, "produce")
        batch = self._batch(view, candidates, requests)
        errors = _steps.StepErrors(batch.size)
        data = _steps.produce(self._call_of(instance, timeout_s), batch, errors)
        scopes = instance.spec.produces
        named = {name if scopes[name] == "row" else name + REQUEST_SCOPE: column for name, column in data.items()}
        return [named, errors.to_wire()]

    def _profile_pick(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, requests, profiles, results = _arguments(args, 4)
        instance = self._instances.find(handle, "profile_handler")
        request = Batch(NO_VIEW, read_requests(requests), []).requests(instance)[0]
        outcome = self._call_of(instance, timeout_s).one("pick", request, profiles, results)
        return _names(_raised(instance, outcome))

    def _profile_process(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, requests, results = _arguments(args, 3)
        instance = self._instances.find(handle, "profile_handler")
        request = Batch(NO_VIEW, read_requests(requests), []).requests(instance)[0]
        outcome = self._call_of(instance, timeout_s).one("process", request, results)
        return _processed(_raised(instance, outcome))

    def _pre_request(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, view, requests, targets = _arguments(args, 4)
        instance = self._instances.find(handle, "pre_request")
        batch = self._batch(view, None, requests)
        listed = _list(targets, "targets")
        if len(listed) != batch.size:
            raise refused("targets are one list of ids for each request")
        _steps.pre_request(self._call_of(instance, timeout_s), batch, listed)
        return None

    def _step(self, step: Value) -> tuple[int, Instance]:
        if not isinstance(step, list) or len(step) != 2 or step[0] not in _POINT_NAMES:
            raise refused("a step is [point, handle], the point 1 for filter or 2 for score")
        point = step[0]
        assert isinstance(point, int)
        return point, self._instances.find(step[1], _POINT_NAMES[point])

    def _batch(self, view: Value, candidates: Value, requests: Value) -> Batch:
        columns = read_requests(requests)
        self._held = held = take_view(view, self._held)
        return Batch(held, columns, read_masks(candidates, held, columns.size))

    def _call_of(self, instance: Instance, timeout_s: float | None) -> _steps.AuthorCalls:
        if self._runner is None and instance.spec.async_methods:
            self._runner = _lazy.async_runner()
        return _steps.AuthorCalls(instance, self._runner, timeout_s)

    # -- slow calls ------------------------------------------------------------------------------

    def _configure(self, args: Sequence[Value], timeout_s: float | None) -> object:
        (wanted,) = _arguments(args, 1)
        if not isinstance(wanted, dict):
            raise refused("configure takes {create, drop}")
        create = _list(wanted.get("create", []), "create")
        drop = _list(wanted.get("drop", []), "drop")
        result, done = self._instances.configure(create, drop, settled=self._settle)
        self._close(done)
        return result

    def _settle(self) -> None:
        """Wait for the hot call that may still use the old table; start what the new one needs."""
        with self._running:
            for instance in self._instances.all():
                self._call_of(instance, None)

    def _check_ready(self, args: Sequence[Value], timeout_s: float | None) -> object:
        waiting: list[str] = []
        for instance in self._instances.all():
            if hasattr(instance.object, "check_ready"):
                outcome = self._call_of(instance, timeout_s).one("check_ready")
                if isinstance(outcome, Failed):
                    instance.context.logger.fault(outcome.fault)
                if isinstance(outcome, Failed) or not outcome:
                    waiting.append(instance.context.name)
        return {"ready": not waiting, "waiting": waiting}

    def _close(self, instances: Sequence[Instance]) -> None:
        for instance in instances:
            if hasattr(instance.object, "close"):
                outcome = self._call_of(instance, _CONTROL_TIMEOUT_S).one("close")
                if isinstance(outcome, Failed):
                    instance.context.logger.fault(outcome.fault)


def _arguments(args: Sequence[Value], count: int) -> Sequence[Value]:
    if len(args) != count:
        raise refused(f"a call with {len(args)} arguments, expected {count}")
    return args


def _list(value: Value, what: str) -> list[Value]:
    if not isinstance(value, list):
        raise refused(f"{what} is a list")
    return value


def _raised(instance: Instance, outcome: object) -> object:
    if isinstance(outcome, Failed):
        instance.context.logger.fault(outcome.fault)
        raise CallFailedError(fault_of(outcome.fault))
    return outcome


def _checked(check: Callable[..., object], *arguments: object) -> object:
    outcome = attempt(check, *arguments)
    if isinstance(outcome, Failed):
        raise CallFailedError(fault_of(outcome.fault))
    return outcome


def _names(value: object) -> object:
    return _checked(_results.names, value, "pick")


def _processed(value: object) -> object:
    return _checked(_results.processed, value)


def answer(connection: Connection, stream: int, result: object) -> bytes:
    """The frame that answers a call; a result that may not cross becomes BAD_RESULT."""
    if isinstance(result, CallError):
        return connection.send_error(stream, result)
    try:
        return connection.send_reply(stream, result)
    except ValueRefusedError as error:
        refusal = CallError(ErrorCode.BAD_RESULT, f"the result cannot cross: {error}", executed=Executed.YES)
        return connection.send_error(stream, refusal)
