"""What plugin refs and parts of the host show of their state, for an operator who has to know what they know.

A ref is asked over the control link of its live process: what is asked changes nothing, and wakes nobody. Every ref has a second
of its own and shows at most 256 KiB; what one cannot show is said in its place. All of them together have at most `MAX_BYTES`.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import anyio
import orjson
from hotbay_sdk.protocol import Method
from hotbay_sdk.protocol.verdicts import MAX_DUMP_BYTES

from hotbay.datalayer.store import EndpointStore
from hotbay.errors import HostError, InputError, Problem
from hotbay.rollout.deployment import Deployment
from hotbay.rpc.leases import Generation
from hotbay.scheduling.router import Router

__all__ = ["DEADLINE_S", "MAX_BYTES", "StateDumps", "host_parts"]

Page = Mapping[str, object]

DEADLINE_S: Final = 1.0
MAX_BYTES: Final = 8 << 20
"""Of JSON in one answer: the commands read twice as much."""
HOST: Final = "host"
"""In place of a plugin's id."""
_POINT: Final = "dump_state"
_LISTED: Final = 100
_REPLY_BYTES: Final = MAX_DUMP_BYTES + 16 * 1024
"""With what is around it."""
_ASKED_AT_ONCE: Final = 16


def host_parts(store: EndpointStore, router: Router) -> Mapping[str, Callable[[], object]]:
    """What the host itself shows, by name."""

    def in_flight() -> Page:
        counts = {one.id: store.ledger.in_flight(one.id) for one in store.endpoints()}
        return _capped({name: count for name, count in counts.items() if count})

    def decisions() -> Page:
        kept = router.decisions
        return {"deciding": router.deciding, "held": router.held, "kept": len(kept), "kept_bytes": kept.size_bytes}

    return {"in-flight": in_flight, "decisions": decisions}


def _capped(values: Mapping[str, object]) -> Page:
    """The first by name, and of how many."""
    return {"total": len(values), "first": {name: values[name] for name in sorted(values)[:_LISTED]}}


@dataclass(frozen=True, slots=True)
class _Ref:
    """One ref. `handle` is as it was when all were looked up: a reload may take it from its process while others are asked."""

    name: str
    type: str
    plugin: str
    generation: Generation | None
    why: str = ""
    handle: int | None = None
    is_shown: bool = True

    def row(self, **more: object) -> Page:
        number = None if self.generation is None else self.generation.number
        return {"ref": self.name, "type": self.type, "plugin": self.plugin, "generation": number, **more}


class StateDumps:
    """See the module. `host` are parts of the host by name. Calls may overlap; for the loop's thread."""

    def __init__(self, deployment: Deployment, host: Mapping[str, Callable[[], object]]) -> None:
        self._deployment = deployment
        self._host = host

    async def dump(self, ref: str | None) -> Page:
        """`{plugins: [{ref, type, plugin, generation, state | error}], host: {part: state}}`; of one ref, that row alone.

        Raises `InputError` NOT_FOUND for a ref that the configuration does not have.
        """
        refs = [one for one in self._refs() if ref is None or one.name == ref]
        if ref is not None:
            if ref in self._host:
                return {"plugins": [], "host": {ref: self._host[ref]()}}
            if not refs:
                raise InputError([self._unknown(ref)])
            return {"plugins": await self._ask(refs), "host": {}}
        # Those that have nothing to show say so only where one of them was named.
        shown = [one for one in refs if one.is_shown]
        return {"plugins": await self._ask(shown), "host": {name: part() for name, part in self._host.items()}}

    def _refs(self) -> Iterator[_Ref]:
        for ref in self._deployment.scheduling.refs:
            if ref.plugin_id is None:
                why = f"it is the host's own, which shows: {', '.join(self._host)}"
                yield _Ref(ref.name, ref.type, HOST, None, why, is_shown=False)
        for plugin in self._deployment.wanted:
            live = self._deployment.live(plugin)
            for spec in self._deployment.refs_of(plugin):
                declared = None if live is None else live.types.get(spec.type)
                if live is None or spec.name not in live.handles or declared is None:
                    yield _Ref(spec.name, spec.type, plugin, None, "its plugin does not run")
                elif _POINT not in declared.points:
                    yield _Ref(spec.name, spec.type, plugin, live, f"its type has no {_POINT}", is_shown=False)
                else:
                    yield _Ref(spec.name, spec.type, plugin, live, handle=live.handles[spec.name])

    async def _ask(self, refs: list[_Ref]) -> list[Page]:
        rows: dict[int, Page] = {}
        limiter = anyio.CapacityLimiter(_ASKED_AT_ONCE)

        async def ask(number: int, ref: _Ref) -> None:
            async with limiter:
                rows[number] = await _row(ref)

        async with anyio.create_task_group() as group:
            for number, ref in enumerate(refs):
                group.start_soon(ask, number, ref)
        return _fitting([rows[number] for number in range(len(refs))])

    def _unknown(self, ref: str) -> Problem:
        known = [*(one.name for one in self._refs()), *self._host]
        near = difflib.get_close_matches(ref, known, 1)
        hint = f"Did you mean '{near[0]}'?" if near else "`hotbay dump` shows all that have something to show"
        return Problem(
            "NOT_FOUND", f"no plugin is configured as '{ref}'", expected="a plugin ref", found=ref, hint=hint
        )


async def _row(ref: _Ref) -> Page:
    generation = ref.generation
    if generation is None or ref.handle is None:
        return ref.row(error={"code": "UNAVAILABLE", "message": ref.why})
    handle = [generation.number, ref.handle]
    try:
        state = await generation.client.control_call(
            Method.DUMP_STATE, [handle], deadline_s=DEADLINE_S, reply_limit_bytes=_REPLY_BYTES
        )
    except HostError as error:
        return ref.row(error={"code": error.code, "message": error.message})
    return ref.row(state=state)


def _fitting(rows: list[Page]) -> list[Page]:
    """The rows, without the states that have no room any more."""
    left, fitting = MAX_BYTES, []
    for row in rows:
        size = len(orjson.dumps(row, default=str, option=orjson.OPT_NON_STR_KEYS))
        if size > left:
            message = "the states before it fill the answer: ask for this ref alone"
            row = {name: value for name, value in row.items() if name != "state"}
            row["error"] = {"code": "RESOURCE_EXHAUSTED", "message": message}
            size = 0
        left -= size
        fitting.append(row)
    return fitting
