"""What a package may ask for beyond being called, and what each of it allows: the one table. Pure.

A manifest asks by name, the operator grants by name (HostConfig `packages[].grants`, or `hotbay grant`), and the host
calls of a capability are answered to processes that have both. An author who asks for a name that is not here is told
when the package is packed; a package of another time's host may ask for one all the same, which then allows nothing.
Host calls that no capability names are for everybody.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from hotbay_sdk.protocol import Method

from hotbay.errors import InputError, Problem

__all__ = ["CAPABILITIES", "Capability", "capability_of", "check_grant", "grant_command", "unknown_capabilities"]


@dataclass(frozen=True, slots=True)
class Capability:
    """A name that is a DNS label, what it allows as half a sentence, and the host calls that need it."""

    name: str
    allows: str
    calls: tuple[Method, ...]


CAPABILITIES: Final[Mapping[str, Capability]] = MappingProxyType(
    {
        each.name: each
        for each in (
            Capability("dial", "connections that the host opens for it", (Method.DIAL,)),
            Capability("endpoints", "addresses, labels and states of all endpoints", (Method.ENDPOINTS,)),
            Capability("metric", "counters of its own among the host's metrics", (Method.METRIC,)),
            Capability("recycle", "a new process in its place whenever it asks", (Method.RECYCLE,)),
            Capability("secret", "secrets that the operator gave to it", (Method.SECRET,)),
            Capability(
                "storage",
                "a small store of bytes that outlives its process",
                (Method.STORAGE_GET, Method.STORAGE_PUT),
            ),
        )
    }
)
_BY_CALL: Final[Mapping[int, str]] = {call: each.name for each in CAPABILITIES.values() for call in each.calls}


def capability_of(method: int) -> str | None:
    """The capability that a host call needs, if it needs one."""
    return _BY_CALL.get(method)


def unknown_capabilities(names: Iterable[str]) -> Mapping[str, str]:
    """Those of `names` that allow nothing in this host, each with the name that is likely meant, if there is one."""
    wrong = [name for name in names if name not in CAPABILITIES]
    return {name: next(iter(get_close_matches(name, CAPABILITIES, n=1)), "") for name in wrong}


def check_grant(names: Iterable[str], *, asked: Iterable[str]) -> None:
    """Raise `InputError` for names that are no capability here and that no build of the plugin has `asked` for."""
    known = list(dict.fromkeys([*CAPABILITIES, *sorted(asked)]))
    problems = [
        Problem(
            "CONFIG_INVALID",
            "there is no such capability",
            path="capabilities",
            expected=", ".join(known),
            found=name,
            hint=f"did you mean '{near[0]}'?" if (near := get_close_matches(name, known, n=1)) else "name one of those",
        )
        for name in names
        if name not in known
    ]
    if problems:
        raise InputError(problems)


def grant_command(plugin_id: str, capability: str, granted: Iterable[str] = ()) -> str:
    """What an operator types to add a capability to those that are `granted`: the command allows what it names alone."""
    names = " ".join(sorted({capability, *granted}))
    return f"hotbay grant {plugin_id} {names}"
