"""What an instance is told of itself, its logger, and what it may ask its host.

The logger writes lines to standard error, which the host drains into the plugin's log for ever; the
`logging` package is not used because importing it costs half a start. The host forwards each line at its level. No
text can forge a line.
"""

from __future__ import annotations

import sys

from hotbay_sdk import _lazy
from hotbay_sdk._errors import HostCallError, ParameterError, describe
from hotbay_sdk.protocol.messages import ErrorCode, Method

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future
    from random import Random
    from socket import socket as Socket
    from typing import Any

    from hotbay_sdk.protocol.values import Value

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
MAX_LINE_CHARS = 16 * 1024
"""The host's own limit of a line."""
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {9: "\t", 10: "\\n", 13: "\\r"}


class Logger:
    """Writes lines `LEVEL name: message` to the plugin's log, frames indented below theirs. Safe to use from several threads."""

    __slots__ = ("_level", "_name")

    def __init__(self, name: str, level: str = "info") -> None:
        self._name = name
        self._level = LEVELS.get(level, 20)

    def debug(self, message: str, *arguments: object) -> None:
        """Write at level debug; `arguments` fill the %-places of `message`."""
        self._write("DEBUG", 10, message, arguments)

    def info(self, message: str, *arguments: object) -> None:
        """Write at level info."""
        self._write("INFO", 20, message, arguments)

    def warning(self, message: str, *arguments: object) -> None:
        """Write at level warning."""
        self._write("WARNING", 30, message, arguments)

    def error(self, message: str, *arguments: object) -> None:
        """Write at level error."""
        self._write("ERROR", 40, message, arguments)

    def exception(self, message: str, *arguments: object) -> None:
        """Write at level error, with the frames and the text of the exception being handled below."""
        fault = sys.exception()
        below = (*_lazy.traceback_text(fault).splitlines(), describe(fault)) if fault is not None else ()
        self._write("ERROR", 40, message, arguments, below)

    def fault(self, fault: BaseException) -> None:
        """Write an exception at level error, with its frames below."""
        self._write("ERROR", 40, "%s", (describe(fault),), _lazy.traceback_text(fault).splitlines())

    def _write(
        self, word: str, level: int, message: str, arguments: tuple[object, ...], below: Iterable[str] = ()
    ) -> None:
        if level < self._level:
            return
        text = message % arguments if arguments else message
        lines = (f"{word} {self._name}: {text}", *(f"    {line}" for line in below))
        whole = "\n".join(line[:MAX_LINE_CHARS].translate(_ESCAPES) for line in lines) + "\n"
        # At once, so that no other thread's lines get between and the host reads one record.
        sys.stderr.write(whole.encode("utf-8", "backslashreplace").decode())
        sys.stderr.flush()


class Host:
    """The host as an instance sees it. This one is none: every call is UNAVAILABLE, nothing is ever cancelled."""

    def cancelled(self) -> bool:
        """Whether nobody waits for the hot call that this thread runs any more."""
        return False

    def call(self, method: int, *args: object) -> Value:
        """Make a host call and wait. Raises `HostCallError`."""
        return self.call_with_descriptors(method, *args)[0]

    def call_with_descriptors(self, method: int, *args: object) -> tuple[Value, tuple[int, ...]]:
        """Make a host call; its result, and the descriptors that came with it, which the caller owns."""
        raise HostCallError(str(ErrorCode.UNAVAILABLE), "there is no host behind this instance")

    def outcomes(self, future: Future[list[object]]) -> list[object] | None:
        """Wait for what async methods make; None when the hot call that waits was cancelled."""
        return future.result()


NO_HOST = Host()


class Context:
    """What an instance is told of itself when it is made, and its way to ask the host.

    `log`, `now` and `entropy` are answered to everybody. The other host calls need a capability, which the package asks
    for and the operator grants; else they raise `HostCallError` with code UNAVAILABLE. Each
    waits for its answer, at most 1 s and never beyond the deadline of the hot call in whose handler it is made;
    a hot call that is over makes no more of them (CANCELLED). They may be made from any thread of the process.
    Meanwhile other calls of a type with concurrency 1 wait, so a handler asks rarely, or keeps what it was told.

    Attributes:
        name: the plugin ref's name in the operator's configuration.
        type: the plugin type.
        logger: lines for the plugin's log, with %-style arguments.
    """

    __slots__ = ("_beside", "_host", "_random", "_seed", "logger", "name", "type")

    def __init__(
        self,
        name: str,
        type_name: str,
        *,
        seed: int = 0,
        log_level: str = "info",
        host: Host | None = None,
        beside: Callable[[str], object] | None = None,
    ) -> None:
        self.name = name
        self.type = type_name
        self.logger = Logger(name, log_level)
        self._seed = seed
        self._random: Random | None = None
        self._host = NO_HOST if host is None else host
        self._beside = beside

    def plugin(self, name: str, path: str = "") -> Any:
        """Another instance of the same package, which the host made before this one.

        The operator's configuration names it in a parameter, and the package's `pyproject.toml` says in `refs` which one, so
        that the host makes it first. Both live and end in this process; who keeps it gets a new one when either is made anew.

        Args:
            name: its ref's name.
            path: the parameter that names it, for the operator.

        Raises:
            ParameterError: there is none of that name.
        """
        found = None if self._beside is None else self._beside(name)
        if found is None:
            raise ParameterError(path, f"there is no plugin {name!r} of this package, or it is not made yet")
        return found

    @property
    def random(self) -> Random:
        """A generator of this instance's own, seeded by the host's seed, the type and the name.

        The same seed gives the same draws, so decisions can be replayed.
        """
        if self._random is None:
            self._random = _lazy.seeded_random(f"{self._seed}/{self.type}/{self.name}")
        return self._random

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the answer of the call that this thread runs: given up, or late.

        Work that takes long asks from time to time and returns anything when it is true; asking costs some
        microseconds. Async methods need not ask: they are cancelled. False in threads that run no call.
        """
        return self._host.cancelled()

    def log(self, level: str, message: str, **fields: object) -> None:
        """Write a record with fields to the host's own log; `logger` writes to the plugin's, at no cost for its callers.

        What goes beyond 200 records at once and 20 a second is counted and left out.

        Args:
            level: debug, info, warning or error.
            message: at most 4 KiB.
            fields: at most 16 plain values, by name, each cut to 256 characters.
        """
        self._host.call(Method.LOG, level, message, fields)

    def metric(self, name: str, value: float, **labels: str) -> None:
        """Add `value` to `hotbay_plugin_counted_total` of the host, with this plugin and `name` as labels (`metric`).

        A plugin has at most 32 names and 256 sets of labels; what goes beyond counts under the name `other`.
        """
        self._host.call(Method.METRIC, name, value, labels)

    def storage_get(self, key: str) -> bytes | None:
        """What was stored under `key` by this plugin, in this or an earlier process; None if nothing was (`storage`).

        The host keeps it in memory: it outlives processes and versions of the plugin, and ends with the host.
        """
        value = self._host.call(Method.STORAGE_GET, key)
        return value if isinstance(value, bytes) else None

    def storage_put(self, key: str, value: bytes | None) -> None:
        """Store at most 120 KiB under `key`; None removes it. RESOURCE_EXHAUSTED when the plugin's quota is used up."""
        self._host.call(Method.STORAGE_PUT, key, value)

    def secret(self, name: str) -> str:
        """A secret that the operator gave to the plugin (`secret`)."""
        return str(self._host.call(Method.SECRET, name))

    def dial(self, host: str, port: int) -> Socket:
        """A connected socket to a host and port that the operator allows; the caller closes it (`dial`)."""
        _, descriptors = self._host.call_with_descriptors(Method.DIAL, host, port)
        return _lazy.socket_of(descriptors)

    def endpoints(self) -> list[dict[str, Value]]:
        """The endpoints that the host knows: maps with at least `id` (`endpoints`)."""
        found = self._host.call(Method.ENDPOINTS)
        return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []

    def recycle(self, reason: str) -> None:
        """Ask to be replaced by a new process of the same package; this one goes on answering until it is (`recycle`)."""
        self._host.call(Method.RECYCLE, reason)

    def now(self) -> float:
        """The host's wall clock, in seconds since 1970: the same for all plugins, and replayable."""
        value = self._host.call(Method.NOW)
        return float(value) if isinstance(value, (int, float)) else 0.0

    def entropy(self, count: int) -> bytes:
        """`count` unpredictable bytes, at most 64 KiB, which the host records for a replay."""
        value = self._host.call(Method.RANDOM, count)
        return value if isinstance(value, bytes) else b""
