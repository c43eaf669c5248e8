"""What a plugin may ask of its host: a table from method to handler, of which the granted ones act.

What needs a capability (`hotbay.capabilities`) and has none is answered UNAVAILABLE, with the capability in the
details' `grant`: a plugin that is told one need not ask again. `log`, `now` and `random` need none. Handlers run on
the loop and at once; one that needs time keeps the `HostCall` and answers it later. What a plugin sends is checked here,
by shape and size, and so is how much of the loop's time it takes.
"""

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from hotbay_sdk.protocol import METHODS, CallError, ErrorCode, Executed, Method, Value

from hotbay.capabilities import capability_of, grant_command
from hotbay.errors import CapacityError, HostError, PluginFault
from hotbay.rpc.allowance import Allowance

logger = logging.getLogger(__name__)

CALLS_PER_S: Final = 2000.0
"""Host calls of one process, for ever; each costs the host's loop some 30 µs."""
CALLS_AT_ONCE: Final = 500
LOGS_PER_S: Final = 20.0
LOGS_AT_ONCE: Final = 200
"""Records of one process in the host's own log: it is the operator's, who reads it."""
ROWS_PER_CALL: Final = 16
ENTROPY_PER_CALL_BYTES: Final = 4096
"""More rows, or bytes, in one answer count as so many calls more: they take the loop as long."""
MAX_KEY_CHARS: Final = 256
MAX_VALUE_BYTES: Final = 120 * 1024
"""Longest stored value: with its key it fits into one frame of a plugin."""
MAX_ENTROPY_BYTES: Final = 64 * 1024
MAX_LABELS: Final = 8
MAX_NAME_CHARS: Final = 64
MAX_TEXT_CHARS: Final = 4096
MAX_FIELDS: Final = 16
MAX_FIELD_CHARS: Final = 256
RESERVED_LABELS: Final = frozenset({"le", "name", "plugin", "quantile"})
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class HostCall:
    """One call of a plugin to its host. Answer it once with `reply` or `fail`; after `cancelled` nobody listens.

    `stream` is what a nested call to the plugin names as its parent.
    """

    __slots__ = ("_answer", "args", "cancelled", "deadline_s", "method", "parent", "refused", "stream")

    def __init__(
        self,
        stream: int,
        method: int,
        args: Sequence[Value],
        *,
        parent: int,
        deadline_s: float,
        answer: Callable[["HostCall", "Value | CallError", Sequence[int]], None],
    ) -> None:
        self.stream = stream
        self.method = method
        self.args = args
        self.parent = parent
        self.deadline_s = deadline_s
        self.cancelled = False
        self.refused = False
        """Answered UNAVAILABLE or RESOURCE_EXHAUSTED: such calls count as a flood when there are too many."""
        self._answer = answer

    def reply(self, value: Value, descriptors: Sequence[int] = ()) -> None:
        """Answer with a value, and with descriptors that the host gives away."""
        self._answer(self, value, descriptors)

    def fail(self, error: HostError) -> None:
        """Answer with an error; a code that the protocol does not know becomes UNAVAILABLE."""
        code = _CODES.get(error.code, ErrorCode.UNAVAILABLE)
        self.refused = code in (ErrorCode.UNAVAILABLE, ErrorCode.RESOURCE_EXHAUSTED)
        details = {key: value for key, value in error.details.items() if isinstance(value, str)}
        self._answer(self, CallError(code, error.message, executed=Executed.NO, details=details), ())


_CODES: Final = {str(code): code for code in ErrorCode}
Handler: TypeAlias = Callable[[HostCall], None]


class PluginStorage(Protocol):
    """A small key-value store of bytes, one for each plugin and instance key. Calls do not overlap."""

    def get(self, key: str) -> bytes | None:
        """What is stored, or None."""

    def put(self, key: str, value: bytes | None) -> None:
        """Store, or remove with None. Raises `CapacityError` RESOURCE_EXHAUSTED over the quota."""


@dataclass(frozen=True, slots=True)
class HostServices:
    """What the host lends to one process. What is None, or empty, is UNAVAILABLE even if granted.

    Args:
        storage: of the plugin and its instance key, whatever process asks.
        metric: takes name, amount and labels, all checked.
        secrets: by name.
        dial: gets host, port and the call, and answers it with a connected socket; it knows what is allowed.
        endpoints: rows with at least `id`.
        recycle: takes the reason why the process wants to be replaced, once.
        wall: seconds since 1970.
        entropy: so many unpredictable bytes.
    """

    storage: PluginStorage | None = None
    metric: Callable[[str, float, Mapping[str, str]], None] | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    dial: Callable[[str, int, HostCall], None] | None = None
    endpoints: Callable[[], Sequence[Mapping[str, Value]]] | None = None
    recycle: Callable[[str], None] | None = None
    wall: Callable[[], float] | None = None
    entropy: Callable[[int], bytes] | None = None


class HostCalls:
    """Serves the host calls of one process. `serve` is a `PluginClient`'s `on_host_call`.

    Args:
        plugin_id: whom an operator grants something.
        label: `plugin id#generation`, for the log.
        granted: capabilities that the manifest asks for and the operator allowed.
        services: what they act on.
        now: monotonic seconds.
    """

    def __init__(
        self,
        plugin_id: str,
        label: str,
        granted: Collection[str],
        services: HostServices,
        *,
        now: Callable[[], float],
    ) -> None:
        self._plugin_id = plugin_id
        self._label = label
        self._granted = frozenset(granted)
        self._services = services
        self._calls = Allowance(CALLS_AT_ONCE, CALLS_PER_S, now)
        self._logs = Allowance(LOGS_AT_ONCE, LOGS_PER_S, now)
        self._logs_dropped = 0
        self._asked_to_go = False
        self._handlers: Mapping[int, Handler] = {
            Method.LOG: self._log,
            Method.METRIC: self._metric,
            Method.STORAGE_GET: self._storage_get,
            Method.STORAGE_PUT: self._storage_put,
            Method.SECRET: self._secret,
            Method.DIAL: self._dial,
            Method.ENDPOINTS: self._endpoints,
            Method.RECYCLE: self._recycle,
            Method.NOW: self._wall,
            Method.RANDOM: self._entropy,
        }

    def serve(self, call: HostCall) -> None:
        """Answer a call, now or through its handler later. Never raises for what a plugin sent."""
        try:
            handler = self._handlers.get(call.method)
            if handler is None:
                raise PluginFault("PROTOCOL_VIOLATION", f"method {call.method} is no host call")
            capability = capability_of(call.method)
            if capability is not None and capability not in self._granted:
                raise self._not_granted(call.method, capability)
            self._spend()
            handler(call)
        except HostError as error:
            call.fail(error)

    def _not_granted(self, method: int, capability: str) -> CapacityError:
        command = grant_command(self._plugin_id, capability, self._granted)
        # The command early: an author sees this in an exception's text, which is cut.
        return _unavailable(
            f"{METHODS[method].name} is not granted: `{command}` allows it to a package that names '{capability}' in "
            "[tool.hotbay] capabilities",
            capability,
        )

    def _spend(self, cost: int = 1) -> None:
        # Beside the call itself: what costs more than there can ever be takes a whole allowance.
        if not self._calls.take(min(cost, CALLS_AT_ONCE - 1)):
            raise CapacityError("RESOURCE_EXHAUSTED", f"more than {CALLS_PER_S:.0f} host calls a second")

    # -- handlers --------------------------------------------------------------------------------

    def _log(self, call: HostCall) -> None:
        level, message, fields = _arguments(call, 3)
        if not isinstance(level, str) or level not in LEVELS or not isinstance(message, str):
            raise _bad("log takes one of debug, info, warning and error, a text and fields")
        if not isinstance(fields, dict) or len(fields) > MAX_FIELDS:
            raise _bad(f"fields are a map of at most {MAX_FIELDS}")
        call.reply(None)
        if not self._logs.take():
            self._logs_dropped += 1
            return
        dropped, self._logs_dropped = self._logs_dropped, 0
        if dropped:
            logger.warning("plugin_log_dropped plugin=%s records=%s", self._label, dropped)
        logger.log(
            LEVELS[level],
            "plugin_log plugin=%s message=%r fields=%r",
            self._label,
            message[:MAX_TEXT_CHARS],
            {key[:MAX_NAME_CHARS]: str(value)[:MAX_FIELD_CHARS] for key, value in fields.items()},
        )

    def _metric(self, call: HostCall) -> None:
        name, amount, labels = _arguments(call, 3)
        if self._services.metric is None:
            raise _absent(call)
        if not isinstance(name, str) or len(name) > MAX_NAME_CHARS or not (name.isascii() and name.isidentifier()):
            raise _bad(f"a metric's name is an identifier of at most {MAX_NAME_CHARS} characters")
        if type(amount) not in (int, float) or not math.isfinite(amount) or amount < 0:  # type: ignore[arg-type,operator]  # a number, by the first test
            raise _bad("a counter grows by a finite number from 0 up")
        if not isinstance(labels, dict) or len(labels) > MAX_LABELS:
            raise _bad(f"labels are a map of at most {MAX_LABELS}")
        checked: dict[str, str] = {}
        for key, value in labels.items():
            if (
                not (key.isascii() and key.isidentifier())
                or not isinstance(value, str)
                or max(len(key), len(value)) > MAX_NAME_CHARS
            ):
                raise _bad(f"labels are identifiers and texts of at most {MAX_NAME_CHARS} characters")
            if key in RESERVED_LABELS or key.startswith("_"):
                raise _bad(f"a label is not named {key}: that is the host's")
            checked[key] = value
        self._services.metric(name, float(amount), checked)  # type: ignore[arg-type]  # as above
        call.reply(None)

    def _storage_get(self, call: HostCall) -> None:
        (key,) = _arguments(call, 1)
        call.reply(self._store(call).get(_key(key)))

    def _storage_put(self, call: HostCall) -> None:
        key, value = _arguments(call, 2)
        if not (value is None or isinstance(value, bytes)):
            raise _bad("a stored value is bytes, or nil to remove it")
        if value is not None and len(value) > MAX_VALUE_BYTES:
            raise CapacityError(
                "RESOURCE_EXHAUSTED", f"{len(value)} bytes, a stored value has at most {MAX_VALUE_BYTES}"
            )
        self._store(call).put(_key(key), value)
        call.reply(None)

    def _store(self, call: HostCall) -> PluginStorage:
        if self._services.storage is None:
            raise _absent(call)
        return self._services.storage

    def _secret(self, call: HostCall) -> None:
        (name,) = _arguments(call, 1)
        if not self._services.secrets:
            raise _absent(call)
        found = self._services.secrets.get(name) if isinstance(name, str) else None
        if found is None:
            raise CapacityError("UNAVAILABLE", "the operator gave no secret of that name")
        call.reply(found)

    def _dial(self, call: HostCall) -> None:
        host, port = _arguments(call, 2)
        if self._services.dial is None:
            raise _absent(call)
        if not isinstance(host, str) or not 0 < len(host) <= MAX_KEY_CHARS:
            raise _bad("dial takes a host's name and a port")
        if type(port) is not int or not 0 < port < 65536:
            raise _bad("a port is 1 to 65535")
        self._services.dial(host, port, call)

    def _endpoints(self, call: HostCall) -> None:
        _arguments(call, 0)
        if self._services.endpoints is None:
            raise _absent(call)
        rows = self._services.endpoints()
        self._spend(len(rows) // ROWS_PER_CALL)
        call.reply([dict(row) for row in rows])

    def _recycle(self, call: HostCall) -> None:
        (reason,) = _arguments(call, 1)
        if self._services.recycle is None:
            raise _absent(call)
        call.reply(None)
        if not self._asked_to_go:
            self._asked_to_go = True
            self._services.recycle(str(reason)[:MAX_KEY_CHARS])

    def _wall(self, call: HostCall) -> None:
        _arguments(call, 0)
        if self._services.wall is None:
            raise _absent(call)
        call.reply(self._services.wall())

    def _entropy(self, call: HostCall) -> None:
        (count,) = _arguments(call, 1)
        if self._services.entropy is None:
            raise _absent(call)
        if type(count) is not int or not 0 < count <= MAX_ENTROPY_BYTES:
            raise _bad(f"a number of bytes from 1 to {MAX_ENTROPY_BYTES}")
        self._spend(count // ENTROPY_PER_CALL_BYTES)
        call.reply(self._services.entropy(count))


def _arguments(call: HostCall, count: int) -> Sequence[Value]:
    if len(call.args) != count:
        raise _bad(f"{METHODS[call.method].name} takes {count} arguments, found {len(call.args)}")
    return call.args


def _key(value: Value) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_KEY_CHARS:
        raise _bad(f"a key is text of 1 to {MAX_KEY_CHARS} characters")
    return value


def _bad(message: str) -> PluginFault:
    return PluginFault("BAD_RESULT", message)


_INSTEAD: Final[Mapping[int, str]] = {
    Method.DIAL: "this host opens no connections for plugins: connect from the plugin, in a thread beside its handlers",
    Method.SECRET: "this host keeps no secrets: the operator gives what the plugin needs among its parameters",
}


def _absent(call: HostCall) -> CapacityError:
    name = METHODS[call.method].name
    text = _INSTEAD.get(call.method, "this host has none to lend")
    return _unavailable(f"{name}: {text}", capability_of(call.method) or name)


def _unavailable(message: str, grant: str) -> CapacityError:
    return CapacityError("UNAVAILABLE", message, details={"grant": grant})
