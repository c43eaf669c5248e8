"""Which method of a host answers which route of the admin socket, and from which arguments. The tables are data."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from hotbay.gateway.admin_operations import AdminOperations, EndpointOperations, InspectOperations, Page
from hotbay.gateway.admin_routes import Arguments

__all__ = ["CALLS", "ENDPOINT_CALLS", "INSPECT_CALLS", "lines_of"]

_DEFAULT_LINES: Final = 200


def lines_of(arguments: Arguments) -> int:
    """How many lines of a log are asked for."""
    count = arguments.optional_count("lines")
    return _DEFAULT_LINES if count is None else count


Call = Callable[[AdminOperations, Arguments, str], Awaitable[Page]]


CALLS: Final[Mapping[str, Call]] = {
    "status": lambda o, a, who: o.status(),
    "plan": lambda o, a, who: o.plan(),
    "apply": lambda o, a, who: o.apply(who),
    "pin": lambda o, a, who: o.pin(
        a.text("plugin"), rev=a.optional_count("rev"), digest=a.optional_text("digest"), who=who
    ),
    "unpin": lambda o, a, who: o.unpin(a.text("plugin"), who),
    "rollback": lambda o, a, who: o.rollback(a.text("plugin"), who),
    "enable": lambda o, a, who: o.enable(a.text("plugin"), who),
    "disable": lambda o, a, who: o.disable(a.text("plugin"), who, force=a.flag("force")),
    "rollout": lambda o, a, who: o.rollout(a.text("plugin"), a.text("action"), who),
    "quarantine": lambda o, a, who: o.quarantine(),
    "clear_quarantine": lambda o, a, who: o.clear_quarantine(a.text("target"), who),
    "grant": lambda o, a, who: o.grant(a.text("plugin"), a.texts("capabilities"), who),
    "history": lambda o, a, who: o.history(a.text("plugin")),
    "logs": lambda o, a, who: o.logs(a.text("plugin"), lines_of(a)),
    "gc": lambda o, a, who: o.gc(dry_run=a.flag("dry_run")),
    "lock": lambda o, a, who: o.lock(),
}

EndpointCall = Callable[[EndpointOperations, Arguments, str], Awaitable[Page]]

ENDPOINT_CALLS: Final[Mapping[str, EndpointCall]] = {
    "endpoints": lambda o, a, who: o.endpoints(),
    "cordon": lambda o, a, who: o.cordon(a.texts("ids"), a.optional_text("selector"), who),
    "uncordon": lambda o, a, who: o.uncordon(a.texts("ids"), a.optional_text("selector"), who),
    "weigh": lambda o, a, who: o.weigh(a.texts("ids"), a.optional_text("selector"), a.text("weight"), who),
}

InspectCall = Callable[[InspectOperations, Arguments], Awaitable[Page]]

INSPECT_CALLS: Final[Mapping[str, InspectCall]] = {
    "explain": lambda o, a: o.explain(a.text("id")),
    "explain_latest": lambda o, a: o.latest(a.optional_count("last") or 1),
    "dump": lambda o, a: o.dump(None),
    "dump_ref": lambda o, a: o.dump(a.text("ref")),
}
