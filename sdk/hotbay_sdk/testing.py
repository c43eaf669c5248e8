"""Call a plugin's types without a process: everything crosses both ends of the protocol in memory.

The harness plays the host: it sends the declared columns and fields, and nothing else, so that a
missing declaration fails in a unit test. Calls are answered synchronously, in the caller's thread.
"""

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

from hotbay_sdk._context import Host
from hotbay_sdk._data_harness import DataHarness
from hotbay_sdk._dispatch import Dispatcher, answer
from hotbay_sdk._errors import HostCallError, ParameterError
from hotbay_sdk._figures import DataFigures, EndpointFigures, RequestFields, kept_ids, requests_of, view_of
from hotbay_sdk._instances import Instance
from hotbay_sdk._plugin import Plugin
from hotbay_sdk._policy_harness import PolicyHarness
from hotbay_sdk._request_harness import RequestHarness
from hotbay_sdk.protocol.calls import (
    POINT_FILTER,
    POINT_SCORE,
    InstanceFacts,
    attribute_kinds,
    declared_column,
    mask_bytes,
)
from hotbay_sdk.protocol.connection import Connection
from hotbay_sdk.protocol.control import Role
from hotbay_sdk.protocol.events import CallReceived, ErrorReceived, NoticeReceived, ReplyReceived
from hotbay_sdk.protocol.messages import METHODS, CallError, ErrorCode, Executed, Method
from hotbay_sdk.protocol.values import Value, check_value

__all__ = ["DataFigures", "EndpointFigures", "HostAnswers", "PluginCallError", "PluginHarness", "RequestFields"]

HostAnswers: TypeAlias = Mapping[str, Callable[..., Value]]
"""Host call → what answers it, such as `{"storage_get": {"k": b"v"}.get}`. Calls that are left out are not granted."""

GENERATION = 1
STATE_BUDGET_BYTES = 64 * 1024 * 1024
DEADLINE_S = 10.0


class PluginCallError(Exception):
    """The plugin answered a call, or one request of it, with an error.

    Args:
        error: code, message and the rest.
        request: the request's position in the call, -1 for all of them.
    """

    def __init__(self, error: CallError, request: int = -1) -> None:
        super().__init__(f"{error.code}: {error.message}")
        self.error = error
        self.request = request


class _AnsweringHost(Host):
    """A host of given answers."""

    def __init__(self, answers: HostAnswers) -> None:
        self.answers = answers
        self.gave_up = False

    def cancelled(self) -> bool:
        return self.gave_up

    def call_with_descriptors(self, method: int, *args: object) -> tuple[Value, tuple[int, ...]]:
        name = METHODS[method].name
        answered = self.answers.get(name)
        if answered is None:
            text = f"{name} is not granted: PluginHarness(plugin, host={{'{name}': …}}) answers it"
            raise HostCallError(str(ErrorCode.UNAVAILABLE), text)
        for arg in args:
            check_value(arg)
        return answered(*args), ()


class _Ref(NamedTuple):
    number: int
    instance: Instance
    state: str | None


class PluginHarness(DataHarness, RequestHarness, PolicyHarness):
    """Configures refs of a plugin and calls them by name. Use it as a context manager, or call `close`.

    Args:
        plugin: the package's plugin.
        seed: what the instances' `context.random` is seeded with.
        host: what answers the instances' host calls; `dial` cannot be answered.

    Attributes:
        cancelled: what `context.cancelled` says.

    `endpoints` is a map of endpoint ids to figures; its order is that of the rows. `candidates`
    holds the ids that a request may go to; None means all. Methods raise `PluginCallError` for the first
    error of a call.
    """

    def __init__(self, plugin: Plugin, *, seed: int = 0, host: HostAnswers | None = None) -> None:
        self._plugin = plugin
        self._answering = _AnsweringHost(host or {})
        self._dispatcher = Dispatcher(generation=GENERATION, seed=seed, host=self._answering)
        self._dispatcher.provide(plugin)
        self._host = Connection(Role.HOST)
        self._end = Connection(Role.PLUGIN)
        self._refs: dict[str, _Ref] = {}
        self._next = 1
        self._epoch = 0

    def __enter__(self) -> "PluginHarness":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every instance."""
        self._refs.clear()
        self._dispatcher.close()

    @property
    def cancelled(self) -> bool:
        """Whether instances see their calls given up."""
        return self._answering.gave_up

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        self._answering.gave_up = value

    def export_state(self) -> bytes:
        """What the refs would hand to the next version of the package.

        Raises:
            PluginCallError: the export of a ref failed; the text names it.
        """
        data = bytearray()
        result = self._dispatcher.export_state([STATE_BUDGET_BYTES, None], data.extend, DEADLINE_S)
        if isinstance(result, CallError):
            raise PluginCallError(result)
        assert isinstance(result, dict)
        for name, outcome in result["refs"].items():
            if outcome != "exported":
                raise PluginCallError(CallError(ErrorCode.PLUGIN_ERROR, f"{name}: {outcome}", executed=Executed.YES))
        return bytes(data)

    def import_state(self, state: bytes) -> None:
        """Have the refs that the next `configure` makes begin with what `export_state` gave. `state_of` tells how it went."""
        refused = self._dispatcher.import_state(state)
        if refused is not None:
            raise PluginCallError(refused)

    def state_of(self, name: str) -> str | None:
        """What became of a ref's state: `imported`, `cold: ` and the reason, or None where none was given."""
        return self._refs[name].state

    def configure(self, name: str, type_name: str, parameters: Mapping[str, object] | None = None) -> None:
        """Make the ref `name`; one of that name is replaced.

        Raises:
            ParameterError: the parameters were refused.
            PluginCallError: the type is unknown, or its `__init__` raised.
        """
        number = self._next
        handle = [GENERATION, number]
        entry = {"handle": handle, "name": name, "type": type_name, "parameters": dict(parameters or {})}
        old = self._refs.get(name)
        dropped = [[GENERATION, old.number]] if old else []
        result = self._call(Method.CONFIGURE, [{"create": [entry], "drop": dropped}])
        assert isinstance(result, dict)
        errors, made = result["errors"], result["instances"]
        assert isinstance(errors, list)
        assert isinstance(made, dict)
        for error in errors:
            assert isinstance(error, dict)
            if error["path"]:
                raise ParameterError(str(error["path"]), str(error["message"]))
            raise PluginCallError(CallError(ErrorCode.CONFIG_INVALID, str(error["message"]), executed=Executed.YES))
        told = result.get("state", {})
        assert isinstance(told, dict)
        state = told.get(str(number))
        instance = self._dispatcher.known([*handle])
        assert instance is not None
        assert InstanceFacts.from_wire(made[str(number)]) == instance.facts
        self._refs[name] = _Ref(number, instance, state if isinstance(state, str) else None)
        self._next += 1

    def facts(self, name: str) -> InstanceFacts:
        """What a ref says of itself: what it reads and consumes beside its type, and the headers that it sets."""
        return self._refs[name].instance.facts

    def drop(self, name: str) -> None:
        """Drop a ref; its instance is closed."""
        ref = self._refs.pop(name)
        self._call(Method.CONFIGURE, [{"create": [], "drop": [[GENERATION, ref.number]]}])

    def check_ready(self) -> bool:
        """Whether every instance says that it is ready."""
        result = self._call(Method.CHECK_READY, [])
        assert isinstance(result, dict)
        return result["ready"] is True

    def score(
        self,
        name: str,
        endpoints: EndpointFigures,
        requests: Sequence[RequestFields] = ({},),
        *,
        candidates: Sequence[str] | None = None,
        data: DataFigures | None = None,
        raw: bool = False,
    ) -> list[dict[str, float]]:
        """Scores of the candidates by endpoint id, a map for each request, as a host counts them.

        A host clamps to [0, 1] and counts what is not finite as 0; scores of a request that are all not
        finite are a `PluginCallError` BAD_RESULT. With `raw` they are what the plugin answered.
        `data` holds consumed columns: B·E numbers, or B under `NAME/request` for scope request, or B texts under `NAME/text`.
        """
        members = self._members(endpoints, candidates)
        scored = self._run(POINT_SCORE, name, endpoints, requests, candidates, data)[1]
        assert isinstance(scored, bytes)
        rows = _chunks(scored, len(endpoints))
        found = [{i: v for i, v in zip(endpoints, row, strict=True) if i in members} for row in rows]
        return found if raw else [_mended(scores, request) for request, scores in enumerate(found)]

    def keep(
        self,
        name: str,
        endpoints: EndpointFigures,
        requests: Sequence[RequestFields] = ({},),
        *,
        candidates: Sequence[str] | None = None,
        data: DataFigures | None = None,
    ) -> list[list[str]]:
        """Ids of the candidates that a filter keeps, a list for each request."""
        bits = self._run(POINT_FILTER, name, endpoints, requests, candidates, data)[0]
        assert isinstance(bits, bytes)
        return kept_ids(bits, endpoints)

    def pick(
        self,
        name: str,
        endpoints: EndpointFigures,
        totals: Mapping[str, float],
        request: RequestFields | None = None,
        *,
        n: int = 1,
    ) -> list[str]:
        """Ids that a picker chooses among the endpoints in `totals`, best first."""
        ref = self._refs[name]
        packed = array("f", [totals.get(i, 0.0) for i in endpoints]).tobytes()
        args = [
            self._handle(ref),
            self._view(ref, endpoints),
            self._candidates(endpoints, tuple(totals)),
            packed,
            self._requests(ref, [request or {}], None),
            n,
        ]
        result = self._rows(Method.PICK, args)
        ids = list(endpoints)
        rows = result[0]
        assert isinstance(rows, list)
        assert isinstance(rows[0], list)
        return [ids[row] for row in rows[0] if isinstance(row, int)]

    def produce(
        self,
        name: str,
        endpoints: EndpointFigures,
        requests: Sequence[RequestFields] = ({},),
        *,
        candidates: Sequence[str] | None = None,
        data: DataFigures | None = None,
    ) -> dict[str, list[list[Any]]]:
        """Produced columns: for each request E numbers, or one number or text for a column of scope request or text."""
        ref = self._refs[name]
        args = [
            self._handle(ref),
            self._view(ref, endpoints),
            self._candidates(endpoints, candidates),
            self._requests(ref, requests, data),
        ]
        made = self._rows(Method.PRODUCE, args)[0]
        assert isinstance(made, dict)
        columns: dict[str, list[list[Any]]] = {}
        for wire_name, packed in made.items():
            column, scope = declared_column(wire_name)
            if isinstance(packed, list):
                columns[column] = [[text] for text in packed]
            else:
                assert isinstance(packed, bytes)
                columns[column] = _chunks(packed, len(endpoints) if scope == "row" else 1)
        return columns

    # -- the host's part -------------------------------------------------------------------------

    def _call(self, method: Method, args: Sequence[object]) -> Value:
        _, frame = self._host.start_call(method, args, deadline_us=int(DEADLINE_S * 1e6))
        (event,) = self._end.feed(frame)
        assert isinstance(event, CallReceived)
        if method in (Method.CONFIGURE, Method.CHECK_READY, Method.DUMP_STATE):
            result = self._dispatcher.control_call(method, event.args)
        else:
            result = self._dispatcher.call(method, event.args, timeout_s=DEADLINE_S)
        (reply,) = self._host.feed(answer(self._end, event.stream, result))
        if isinstance(reply, ErrorReceived):
            raise PluginCallError(reply.error)
        assert isinstance(reply, ReplyReceived)
        return reply.result

    def _rows(self, method: Method, args: Sequence[object]) -> list[Value]:
        """A call whose result ends with row errors; the first of them is raised."""
        result = self._call(method, args)
        assert isinstance(result, list)
        errors = result[-1]
        assert isinstance(errors, list)
        for entry in errors:
            assert isinstance(entry, list)
            assert isinstance(entry[1], int)
            raise PluginCallError(CallError.from_wire(entry[2]), entry[1])
        return result

    def _run(
        self,
        point: int,
        name: str,
        endpoints: EndpointFigures,
        requests: Sequence[RequestFields],
        candidates: Sequence[str] | None,
        data: DataFigures | None,
    ) -> list[Value]:
        ref = self._refs[name]
        args = [
            [[point, self._handle(ref)]],
            self._view(ref, endpoints),
            self._candidates(endpoints, candidates),
            self._requests(ref, requests, data),
        ]
        return self._rows(Method.RUN, args)

    def _handle(self, ref: _Ref) -> list[int]:
        return [GENERATION, ref.number]

    def _handle_of(self, name: str) -> list[int]:
        return self._handle(self._refs[name])

    def _raise(self, error: CallError) -> NoReturn:
        raise PluginCallError(error)

    def _members(self, endpoints: EndpointFigures, candidates: Sequence[str] | None) -> set[str]:
        return set(endpoints if candidates is None else candidates)

    def _candidates(self, endpoints: EndpointFigures, candidates: Sequence[str] | None) -> bytes | None:
        if candidates is None:
            return None
        members = self._members(endpoints, candidates)
        bits = sum(1 << row for row, i in enumerate(endpoints) if i in members)
        return bits.to_bytes(mask_bytes(len(endpoints)), "little")

    def _view(self, ref: _Ref, endpoints: EndpointFigures) -> list[object]:
        self._epoch += 1
        return view_of(self._epoch, endpoints, ref.instance.scope, attribute_kinds(self._plugin.declarations))

    def _view_of(self, name: str, endpoints: EndpointFigures) -> list[object]:
        return self._view(self._refs[name], endpoints)

    def _requests_of(
        self, name: str, requests: Sequence[RequestFields], data: DataFigures | None = None
    ) -> list[object]:
        return self._requests(self._refs[name], requests, data)

    def _instance_of(self, name: str) -> Instance:
        return self._refs[name].instance

    def _tell(self, method: Method, args: Sequence[object]) -> None:
        for event in self._end.feed(self._host.send_notice(method, args)):
            assert isinstance(event, NoticeReceived)
            failed = self._dispatcher.call(event.meta.method, event.args, timeout_s=DEADLINE_S)
            if isinstance(failed, CallError):
                raise PluginCallError(failed)

    def _requests(self, ref: _Ref, requests: Sequence[RequestFields], data: DataFigures | None) -> list[object]:
        return requests_of(requests, data, ref.instance.scope, ref.instance.facts.block_tokens)


def _mended(scores: Mapping[str, float], request: int) -> dict[str, float]:
    """Scores of one request as a host counts them."""
    if scores and not any(math.isfinite(value) for value in scores.values()):
        message = "no score of the request is finite"
        raise PluginCallError(CallError(ErrorCode.BAD_RESULT, message, executed=Executed.YES), request)
    return {i: min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0 for i, value in scores.items()}


def _chunks(packed: bytes, width: int) -> list[list[float]]:
    values: list[float] = list(memoryview(packed).cast("f")) if packed else []
    return [values[start : start + width] for start in range(0, len(values), width or 1)]
