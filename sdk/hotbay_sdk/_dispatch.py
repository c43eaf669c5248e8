"""Runs a decoded call against the configured instances. No IO but the plugin's log.

`_serve` feeds it from the links, `testing.PluginHarness` from memory. Hot calls never overlap, but those of types
that declare it; `configure`, `check_ready` and `export_state` run in another thread. The first waits for the hot
calls that run only before it closes what was dropped, the last keeps them from one step of an export. Every fault of an
author's code becomes an error of the step and the request that it concerns; SystemExit alone passes.
"""

from __future__ import annotations

from _queue import SimpleQueue
from _thread import allocate_lock, get_ident
from time import monotonic

from hotbay_sdk import _lazy, _steps
from hotbay_sdk._batch import Batch, HeldView, read_masks, read_requests, take_view
from hotbay_sdk._context import NO_HOST
from hotbay_sdk._errors import CallFailedError, Failed, attempt, fault_of
from hotbay_sdk._instances import Instance, Instances, refused
from hotbay_sdk._points import DATA_POINTS
from hotbay_sdk.protocol.calls import POINT_FILTER, POINT_SCORE, wire_column
from hotbay_sdk.protocol.messages import (
    DATA_METHODS,
    REQUEST_METHODS,
    CallError,
    ErrorCode,
    Executed,
    MalformedMessageError,
    Method,
)
from hotbay_sdk.protocol.values import ValueRefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable, Sequence

    from hotbay_sdk._areas import Areas
    from hotbay_sdk._async import AsyncRunner
    from hotbay_sdk._calls import RunningCall
    from hotbay_sdk._context import Host
    from hotbay_sdk._plugin import Plugin, PluginType
    from hotbay_sdk.protocol.connection import Connection
    from hotbay_sdk.protocol.events import CallReceived, NoticeReceived
    from hotbay_sdk.protocol.values import Value

_POINT_NAMES = {POINT_FILTER: "filter", POINT_SCORE: "score"}
_ORDINARY = frozenset({"filter", "score", "pick", "produce", *DATA_POINTS})
"""Points whose calls need no module that is imported later, or one that is imported by itself."""
_CONTROL_TIMEOUT_S = 30.0
_WITH_VIEW = frozenset(
    {
        *(Method.RUN, Method.PICK, Method.PRODUCE, Method.PROFILE_PICK, Method.PROFILE_PROCESS),
        *(Method.SCREEN, Method.ADMIT, Method.PRE_REQUEST, Method.SATURATION),
    }
)
"""Methods whose second argument is a view."""


class Dispatcher:
    """The configured instances of one process and the calls to them."""

    def __init__(self, *, generation: int, seed: int = 0, log_level: str = "info", host: Host | None = None) -> None:
        self._instances = Instances(generation=generation, seed=seed, log_level=log_level, host=host)
        self._host = NO_HOST if host is None else host
        self._held: HeldView | None = None
        self._areas: Areas | None = None
        self._reads: frozenset[str] = frozenset()
        self._running = allocate_lock()
        self.overlapping = False
        """Whether some type takes overlapping calls."""
        self._slots: dict[str, SimpleQueue[None]] = {}
        self._inside: dict[int, object] = {}
        self._left: SimpleQueue[None] | None = None
        self._runner: AsyncRunner | None = None
        self._handlers: dict[int, Callable[[Sequence[Value], float | None], object]] = {
            Method.RUN: self._run,
            Method.PICK: self._pick,
            Method.PRODUCE: self._produce,
            Method.CONFIGURE: self._configure,
            Method.CHECK_READY: self._check_ready,
        }

    def provide(self, plugin: Plugin) -> None:
        """Take the types of a plugin, before the first call."""
        self._instances.plugin = plugin
        for declared in plugin.declarations:
            if declared.concurrency > 1:
                slots = self._slots[declared.type] = SimpleQueue()
                for _ in range(declared.concurrency):
                    slots.put(None)
        self.overlapping = bool(self._slots)

    def overlaps(self, event: CallReceived | NoticeReceived) -> tuple[str, int] | None:
        """The threads that are to run a call, if all of its types take overlapping calls: their name, and how many.

        The call's view is taken now, because views complete each other in the order of the calls, whatever runs them.
        None also for what cannot be read: the call that follows answers it.
        """
        method, args = event.meta.method, event.args
        if method in _WITH_VIEW and len(args) > 1:
            try:
                held = self._take_view(args[1])
            except (CallFailedError, MalformedMessageError):
                return None
            args[1] = held  # type: ignore[call-overload]  # not a value of the wire any more: `_batch` knows both
        types = self._types_of(method, args)
        if not types or any(spec.name not in self._slots for spec in types):
            return None
        return "+".join(sorted(spec.name for spec in types)), min(spec.declaration.concurrency for spec in types)

    def call(self, method: int, args: Sequence[Value], *, timeout_s: float | None = None) -> object:
        """The result of a hot call, or a `CallError`; one thread at a time. `timeout_s` bounds async methods."""
        with self._running:
            if self.overlapping:
                return self._in_slots(method, args, timeout_s)
            return self._answer(method, args, timeout_s)

    def overlapping_call(self, method: int, args: Sequence[Value], *, timeout_s: float | None = None) -> object:
        """The same, of a type that takes overlapping calls, in any thread."""
        thread = get_ident()
        self._inside[thread] = args
        try:
            return self._in_slots(method, args, timeout_s)
        finally:
            del self._inside[thread]
            if self._left is not None:
                self._left.put(None)

    def nested_call(self, method: int, args: Sequence[Value], *, timeout_s: float | None = None) -> object:
        """The same, in a thread whose own call waits for its host."""
        return self._answer(method, args, timeout_s)

    def control_call(self, method: int, args: Sequence[Value], timeout_s: float = _CONTROL_TIMEOUT_S) -> object:
        """The result of `configure`, `check_ready` or `dump_state`, or a `CallError`; one thread at a time."""
        return self._answer(method, args, timeout_s)

    @property
    def guard(self) -> LockType:
        """Held while a hot call of a type that takes one at a time may run."""
        return self._running

    def known(self, handle: Value) -> Instance | None:
        """The instance of a handle, None if there is none."""
        return self._instances.known(handle)

    def find(self, handle: object, point: str) -> Instance:
        """The instance of a handle, if it answers a point; raises `CallFailedError`."""
        return self._instances.find(handle, point)

    def export_state(self, args: Sequence[Value], send: Callable[[bytes], None], timeout_s: float) -> object:
        """Give the state of all refs to `send`; their outcomes, or a `CallError`. In the thread of control calls.

        Arguments of the call: the most bytes that are taken, and type → versions that the successor knows, or nil.
        """
        try:
            budget_bytes, wanted = arguments_of(args, 2)
            if type(budget_bytes) is not int or not (wanted is None or isinstance(wanted, dict)):
                raise refused("export_state takes a number of bytes and {type: [version…]} or nil")
            exporter = _lazy.exporter(send, budget_bytes, monotonic() + timeout_s)
            return exporter.run(self._instances.all(), self._running, wanted)
        except CallFailedError as failure:
            return failure.error

    def import_state(self, data: bytes) -> CallError | None:
        """Keep a predecessor's state for the first refs that are made."""
        try:
            self._instances.state = _lazy.read_state(data)
        except ValueError as error:
            return CallError(ErrorCode.BAD_RESULT, f"the state cannot be read: {error}", executed=Executed.NO)
        return None

    def share(self, args: Sequence[Value], descriptors: tuple[int, ...]) -> CallError | None:
        """Take areas of shared columns, which come before any call that names them. In the control thread."""
        if self._areas is None:
            self._areas = _lazy.areas()
        return self._areas.take(args, descriptors)

    def begin_run(self, args: Sequence[Value], point: str, run: RunningCall) -> Instance | CallError:
        """The instance whose method of `point` is to run; `run` is cancelled when the instance is closed."""
        try:
            (handle,) = arguments_of(args, 1)
            instance = self.find(handle, point)
        except CallFailedError as failure:
            return failure.error
        instance.runs.append(run)
        return instance

    def _in_slots(self, method: int, args: Sequence[Value], timeout_s: float | None) -> object:
        """Answer a call with one slot of every type in it that bounds its overlapping calls."""
        names = sorted({spec.name for spec in self._types_of(method, args)} & self._slots.keys())
        for name in names:
            self._slots[name].get()
        try:
            return self._answer(method, args, timeout_s)
        finally:
            for name in names:
                self._slots[name].put(None)

    def _types_of(self, method: int, args: Sequence[Value]) -> list[PluginType]:
        """The types that a call is for, as far as it can be read."""
        if not args:
            return []
        first = args[0]
        if method == Method.RUN:
            steps = first if isinstance(first, list) else []
            handles = [step[1] for step in steps if isinstance(step, list) and len(step) == 2]
        else:
            handles = [first]
        found = [self._instances.known(handle) for handle in handles]
        return list({instance.spec.name: instance.spec for instance in found if instance is not None}.values())

    def close(self) -> None:
        """Close every instance, then the asyncio loop if there is one."""
        self._close(self._instances.clear())
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _answer(self, method: int, args: Sequence[Value], timeout_s: float | None) -> object:
        handler = self._handlers.get(method) or self._later_handler(method)
        if handler is None:
            return refused(f"method {method} is unknown to this SDK").error
        try:
            return handler(args, timeout_s)
        except CallFailedError as failure:
            return failure.error
        except MalformedMessageError as error:
            return refused(str(error)).error

    def _later_handler(self, method: int) -> Callable[[Sequence[Value], float | None], object] | None:
        """What answers a method that few processes are asked for."""
        if method in DATA_METHODS:
            self._handlers |= _lazy.data_handlers(self.find, self.call_of)
        elif method in REQUEST_METHODS:
            self._handlers |= _lazy.request_handlers(self)
        return self._handlers.get(method)

    # -- hot calls -------------------------------------------------------------------------------

    def _run(self, args: Sequence[Value], timeout_s: float | None) -> object:
        where = args[4] if len(args) == 5 else None
        steps, view, candidates, requests = arguments_of(args if where is None else args[:4], 4)
        chosen = [self._step(step) for step in list_of(steps, "steps")]
        batch = self.batch_of(view, candidates, requests)
        idle = batch.size == 0 or batch.view.rows == 0
        errors = _steps.StepErrors(batch.size)
        scores: list[bytes] = []
        for index, (point, instance) in enumerate(chosen):
            if point == POINT_SCORE:
                blank = bytes(4 * batch.view.rows)
                rows = (
                    [blank] * batch.size
                    if idle
                    else _steps.score(self.call_of(instance, timeout_s), batch, errors, index)
                )
                scores.extend(rows)
            elif not idle:
                _steps.keep(self.call_of(instance, timeout_s), batch, errors, index)
        bits = batch.packed_masks() if any(point == POINT_FILTER for point, _ in chosen) else None
        written = None if where is None or self._areas is None else self._areas.write(where, scores)
        return [bits, b"".join(scores) if written is None else written, errors.to_wire()]

    def _pick(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, view, candidates, totals, requests, n = arguments_of(args, 6)
        instance = self.find(handle, "pick")
        batch = self.batch_of(view, candidates, requests)
        if not isinstance(totals, bytes) or len(totals) != 4 * batch.size * batch.view.rows:
            raise refused("totals are B x E float32")
        if type(n) is not int:
            raise refused("n is a whole number")
        errors = _steps.StepErrors(batch.size)
        rows = _steps.pick(self.call_of(instance, timeout_s), batch, errors, totals=totals, n=max(1, n))
        return [rows, errors.to_wire()]

    def _produce(self, args: Sequence[Value], timeout_s: float | None) -> object:
        handle, view, candidates, requests = arguments_of(args, 4)
        instance = self.find(handle, "produce")
        batch = self.batch_of(view, candidates, requests)
        errors = _steps.StepErrors(batch.size)
        data = _steps.produce(self.call_of(instance, timeout_s), batch, errors)
        scopes = instance.spec.produces
        named = {wire_column(name, scopes[name]): column for name, column in data.items()}
        return [named, errors.to_wire()]

    def _step(self, step: Value) -> tuple[int, Instance]:
        if not isinstance(step, list) or len(step) != 2 or step[0] not in _POINT_NAMES:
            raise refused("a step is [point, handle], the point 1 for filter or 2 for score")
        point = step[0]
        assert isinstance(point, int)
        return point, self._instances.find(step[1], _POINT_NAMES[point])

    def batch_of(self, view: Value | HeldView, candidates: Value, requests: Value) -> Batch:
        """The arguments of a call as views for authors; raises `CallFailedError` where they cannot be read."""
        columns = read_requests(requests)
        held = self.view_of(view)
        return Batch(held, columns, read_masks(candidates, held, columns.size))

    def view_of(self, view: Value | HeldView) -> HeldView:
        """The view of a call."""
        return view if isinstance(view, HeldView) else self._take_view(view)

    def _take_view(self, value: Value) -> HeldView:
        self._held = held = take_view(value, self._held, self._areas, self._reads)
        return held

    def call_of(self, instance: Instance, timeout_s: float | None) -> _steps.AuthorCalls:
        """What calls methods of an instance."""
        if self._runner is None and instance.spec.async_methods:
            self._runner = _lazy.async_runner(self._host)
        return _steps.AuthorCalls(instance, self._runner, timeout_s)

    # -- slow calls ------------------------------------------------------------------------------

    def _configure(self, args: Sequence[Value], timeout_s: float | None) -> object:
        (wanted,) = arguments_of(args, 1)
        if not isinstance(wanted, dict):
            raise refused("configure takes {create, drop}")
        create = list_of(wanted.get("create", []), "create")
        drop = list_of(wanted.get("drop", []), "drop")
        result, done = self._instances.configure(create, drop, settled=self._settle)
        self._close(done)
        return result

    def _settle(self) -> None:
        """Wait for the hot calls that may still use the old table; start what the new one needs."""
        self._reads = frozenset(name for instance in self._instances.all() for name in instance.scope.reads)
        if any(not _ORDINARY.issuperset(instance.spec.methods) for instance in self._instances.all()):
            # Now, and not in the first call, whose deadline is short.
            self._later_handler(Method.PRE_REQUEST)
        with self._running:
            for instance in self._instances.all():
                self.call_of(instance, None)
        self._left = SimpleQueue()
        inside = dict(self._inside)
        while any(self._inside.get(thread) is call for thread, call in inside.items()):
            self._left.get()
        self._left = None

    def _check_ready(self, args: Sequence[Value], timeout_s: float | None) -> object:
        waiting: list[str] = []
        for instance in self._instances.all():
            if hasattr(instance.object, "check_ready"):
                outcome = self.call_of(instance, timeout_s).one("check_ready")
                if isinstance(outcome, Failed):
                    instance.context.logger.fault(outcome.fault)
                if isinstance(outcome, Failed) or not outcome:
                    waiting.append(instance.context.name)
        return {"ready": not waiting, "waiting": waiting}

    def _close(self, instances: Sequence[Instance]) -> None:
        for instance in instances:
            for run in instance.runs:
                run.cancel()
            if hasattr(instance.object, "close"):
                outcome = self.call_of(instance, _CONTROL_TIMEOUT_S).one("close")
                if isinstance(outcome, Failed):
                    instance.context.logger.fault(outcome.fault)


def arguments_of(args: Sequence[Value], count: int) -> Sequence[Value]:
    """The arguments of a call, if they are so many; raises `CallFailedError`."""
    if len(args) != count:
        raise refused(f"a call with {len(args)} arguments, expected {count}")
    return args


def list_of(value: Value, what: str) -> list[Value]:
    """An argument that is a list; raises `CallFailedError`."""
    if not isinstance(value, list):
        raise refused(f"{what} is a list")
    return value


def outcome_of(instance: Instance, outcome: object) -> object:
    """What an author's method returned; what it raised is logged, and a `CallFailedError`."""
    if isinstance(outcome, Failed):
        instance.context.logger.fault(outcome.fault)
        raise CallFailedError(fault_of(outcome.fault))
    return outcome


def checked(check: Callable[..., object], *arguments: object) -> object:
    """The result of a check of what an author's method returned; what it raises is a `CallFailedError`."""
    outcome = attempt(check, *arguments)
    if isinstance(outcome, Failed):
        raise CallFailedError(fault_of(outcome.fault))
    return outcome


def answer(connection: Connection, stream: int, result: object) -> bytes:
    """The frame that answers a call; a result that may not cross becomes BAD_RESULT."""
    if isinstance(result, CallError):
        return connection.send_error(stream, result)
    try:
        return connection.send_reply(stream, result)
    except ValueRefusedError as error:
        refusal = CallError(ErrorCode.BAD_RESULT, f"the result cannot cross: {error}", executed=Executed.YES)
        return connection.send_error(stream, refusal)
