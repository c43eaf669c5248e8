"""Every import that happens later than start, each with its reason.

A plugin's start is measured against a bare interpreter's: what only some plugins need, or what is
needed only after READY, is imported when first used.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from random import Random
    from socket import socket as Socket

    from hotbay_sdk._areas import Areas
    from hotbay_sdk._async import AsyncRunner
    from hotbay_sdk._context import Host
    from hotbay_sdk._data_calls import DataCalls
    from hotbay_sdk._data_results import CallOf, Find, Handler
    from hotbay_sdk._dispatch import Dispatcher
    from hotbay_sdk._host_calls import HostCalls
    from hotbay_sdk._instances import Instance, Section
    from hotbay_sdk._plugin import PluginType
    from hotbay_sdk._state import Exporter
    from hotbay_sdk._tables import HeldTables
    from hotbay_sdk._workers import WorkerPool
    from hotbay_sdk.protocol.calls import InstanceFacts
    from hotbay_sdk.protocol.events import CallReceived, NoticeReceived
    from hotbay_sdk.protocol.handshake import DataDeclaration
    from hotbay_sdk.protocol.values import Value

MAX_TRACEBACK_CHARS = 16 * 1024

EXPORTS: Mapping[str, tuple[str, ...]] = {
    "_data_points": (
        "Discovery",
        "DiscoveryNotifier",
        "EventExtractor",
        "Extractor",
        "NotificationSource",
        "ObjectNotifier",
        "PollingSource",
        "WatchSource",
    ),
    "_flow_points": (
        "Band",
        "EvictionFilterPolicy",
        "EvictionOrderingPolicy",
        "FairnessPolicy",
        "Flow",
        "InFlightRequest",
        "OrderingPolicy",
        "QueuedRequest",
        "UsageLimitPolicy",
    ),
    "_request_points": (
        "Admitter",
        "Denial",
        "ParsedRequest",
        "Parser",
        "RequestHeaderProcessor",
        "ResponseBodyProcessor",
        "ResponseHeaderProcessor",
        "SaturationDetector",
        "Screener",
        "StateDumper",
    ),
    "_responses": ("Response",),
}
"""Module → the names of it that the package exports, and imports when they are asked for."""


def class_names() -> list[str]:
    """What a plugin type may derive from."""
    import hotbay_sdk  # only to word an error

    return [name for name in hotbay_sdk.__all__ if hasattr(getattr(hotbay_sdk, name), "_hotbay_point")]


def exported(package: str, name: str) -> object:
    """What the package exports under a name that it has not imported yet. Raises AttributeError."""
    for module, names in EXPORTS.items():
        if name in names:
            return attribute_of(f"{package}.{module}:{name}")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def traceback_text(fault: BaseException) -> str:
    """Frames of `fault`, innermost last; the tail of at most `MAX_TRACEBACK_CHARS` characters.

    The exception object itself is never rendered: its `__str__` is the author's code.
    """
    import traceback  # linecache and tokenize: only when something failed

    return "".join(traceback.format_tb(fault.__traceback__, limit=-50))[-MAX_TRACEBACK_CHARS:]


def nearest(name: str, known: Sequence[str]) -> str:
    """The known name most like `name`, or an empty string."""
    import difflib  # only to word an error

    found = difflib.get_close_matches(name, known, n=1)
    return found[0] if found else ""


def seeded_random(seed: str) -> Random:
    """A generator with a state of its own."""
    import random  # hashlib and bisect: only for types that draw

    return random.Random(seed)  # noqa: S311  # repeatable draws are the purpose


def dataclass_from(kind: type, parameters: Mapping[str, object]) -> object:
    """Strictly build a parameter dataclass."""
    from hotbay_sdk._parameters import parse_dataclass  # dataclasses imports inspect; needed after READY only

    return parse_dataclass(kind, parameters)


def is_dataclass_type(kind: object) -> bool:
    """Whether `kind` is a dataclass, told without importing dataclasses."""
    return isinstance(kind, type) and hasattr(kind, "__dataclass_fields__")


def async_runner(host: Host) -> AsyncRunner:
    """A thread with an asyncio loop."""
    from hotbay_sdk._async import AsyncRunner  # asyncio costs several starts; only for types with async methods

    return AsyncRunner(host)


def read_state(data: bytes) -> dict[tuple[str, str], Section]:
    """A predecessor's state by (type, ref name). Raises `StateUnreadableError`, a ValueError."""
    from hotbay_sdk._state import read  # only where state is handed over

    return read(data)


def import_state(instance: Instance, section: Section | None) -> tuple[str, bool]:
    """Give an instance its predecessor's state; the outcome, and whether the instance is spoilt by it."""
    from hotbay_sdk._state import imported  # as above

    return imported(instance, section)


def exporter(send: Callable[[bytes], None], budget_bytes: int, deadline: float) -> Exporter:
    """Writes the state of refs through `send`."""
    from hotbay_sdk._state import Exporter  # as above

    return Exporter(send, budget_bytes=budget_bytes, deadline=deadline)


def socket_of(descriptors: tuple[int, ...]) -> Socket:
    """The connected socket that a host passed; it owns the first descriptor, others are closed."""
    import socket  # selectors and enum: only for plugins that dial

    if not descriptors:
        raise OSError("the host passed no socket")
    for surplus in descriptors[1:]:
        os.close(surplus)
    return socket.socket(fileno=descriptors[0])


def dump_stacks(descriptor: int) -> None:
    """Write the stacks of all threads to a descriptor."""
    import faulthandler  # built in; only for a process that hangs

    faulthandler.dump_traceback(descriptor, all_threads=True)


def dump_stacks_on_signal(signum: int, descriptor: int) -> None:
    """Let the kernel interrupt a process that no thread of can answer, to the same end."""
    import faulthandler  # as above

    faulthandler.register(signum, file=descriptor, all_threads=True, chain=False)


def worker_pool(run: Callable[[CallReceived | NoticeReceived, float], None]) -> WorkerPool:
    """Threads for types that take overlapping calls."""
    from hotbay_sdk._workers import WorkerPool  # only for packages with such types

    return WorkerPool(run)


def data_declaration(
    where: str,
    cls: type,
    points: Collection[str],
    payload: str,
    families: Iterable[str],
    attributes: Mapping[str, str] | None,
    default_source: str,
    interval_s: float,
) -> DataDeclaration:
    """What a type of the data layer declares, checked. Raises ValueError and TypeError."""
    from hotbay_sdk._data_declarations import checked  # only for packages with such types

    return checked(where, cls, points, payload, families, attributes, default_source, interval_s)


def checked_claims(where: str, claims: Iterable[str]) -> tuple[str, ...]:
    """The path suffixes of a parser, checked. Raises ValueError."""
    from hotbay_sdk._request_declarations import checked_claims as check  # only for packages with parsers

    return check(where, claims)


def instance_facts(made: object, spec: PluginType) -> InstanceFacts:
    """What an instance says of itself, checked. Raises ValueError."""
    from hotbay_sdk._request_declarations import instance_facts as check  # only for instances that say something

    return check(made, spec)


def data_handlers(find: Find, call_of: CallOf) -> Mapping[int, Handler]:
    """By method, what answers calls of the data layer."""
    from hotbay_sdk._data_results import handlers  # only for processes that get such calls

    return handlers(find, call_of)


def request_handlers(dispatcher: Dispatcher) -> Mapping[int, Handler]:
    """By method, what answers calls around the scheduling cycle."""
    from hotbay_sdk._request_calls import handlers  # only for processes with such types

    return handlers(dispatcher)


def data_calls(dispatcher: Dispatcher, host: HostCalls) -> DataCalls:
    """Threads for calls of the data layer."""
    from hotbay_sdk._data_calls import DataCalls  # as above

    return DataCalls(dispatcher, host)


def run_exit_handlers() -> bool:
    """Whether the interpreter's own exit would wait for ever; what it calls at exit has been called then.

    `threading` takes the thread that imports it first for the main one. Where that is a thread of this package, as for a type
    with async methods, the exit joins it, and it never ends.
    """
    threading = sys.modules.get("threading")
    if threading is None or threading.main_thread().ident == threading.get_ident():
        return False
    import atexit  # built in; only for such processes

    atexit._run_exitfuncs()
    return True


def areas() -> Areas:
    """The shared columns of the process, none yet."""
    from hotbay_sdk._areas import Areas  # mmap: only for processes that are passed some

    return Areas()


def take_tables(told: Value, held: HeldTables | None, rows: int) -> HeldTables | None:
    """The side tables of a call, None if they are not held."""
    from hotbay_sdk._tables import take  # only for processes that read some

    return take(told, held, rows)


def attribute_of(entrypoint: str) -> object:
    """Import `module:attribute`."""
    module, _, attribute = entrypoint.partition(":")
    __import__(module)  # importlib would add itself and warnings to every start
    found: object = getattr(sys.modules[module], attribute)
    return found
