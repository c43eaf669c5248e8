"""What an operator asks of the endpoints while a host runs: to look at them, and to cordon, uncordon or weigh some.

A command names endpoints by id, by the part of it after the namespace where that is unique, or by a label selector, which
stands for those that match it now. It takes effect as a whole or not at all: it is written to the state directory first,
and the next snapshot has it. An endpoint that discovery took away is shown until the last request that it had has ended.
One loop's thread; calls may overlap.
"""

import difflib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

import anyio
import anyio.to_thread

from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, EndpointState, Upsert
from hotbay.datalayer.health.watch import HealthWatch
from hotbay.datalayer.operations.label_selector import read_selector
from hotbay.datalayer.operations.overrides import Override, OverrideFile, Overrides, with_word
from hotbay.datalayer.operations.page import leaving_row, page_row
from hotbay.datalayer.operator_labels import label_problems, read_weight
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import InputError, Problem, printable

__all__ = ["DEFAULT_WEIGHT", "EndpointCommands", "Telling"]

logger = logging.getLogger(__name__)

Page = Mapping[str, object]
Word = Callable[[str, Override], Override]
"""The operator's new word about an endpoint, from the one before."""

DEFAULT_WEIGHT: Final = "default"
"""In place of a weight: whatever discovery says."""

_GUESSED: Final = 3
_COMPARED: Final = 1_000
"""Mistyped names of a command, and known ones, for which the nearest is looked for: each pair takes ten microseconds."""

_LEAVING_KEPT: Final = 64
"""Endpoints that left, from which on those that nothing is in flight at are looked for."""

_LOOK: Final = "`hotbay endpoints` lists them"


class Telling(Protocol):
    """What tells which endpoints there are, as the page sees it."""

    @property
    def not_ready(self) -> Sequence[str]: ...
    @property
    def problems(self) -> Sequence[Problem]: ...


class EndpointCommands:
    """See the module. `load` comes before endpoints are discovered, so that none of them is picked against the operator's word.

    `discovery` says what fills the store, None while nothing does.
    """

    def __init__(
        self, store: EndpointStore, health: HealthWatch, file: OverrideFile, wall: Callable[[], float]
    ) -> None:
        self.discovery: Callable[[], Telling | None] = lambda: None
        self._store = store
        self._health = health
        self._file = file
        self._wall = wall
        self._overrides: Overrides = {}
        self._one_at_a_time = anyio.Lock()
        self._left: dict[str, EndpointMetadata] = {}
        self._look_at = _LEAVING_KEPT
        store.subscribe(_tell_of_labels)
        store.subscribe(self._follow)

    async def load(self) -> None:
        """Obey what the file says. May be called again: a successor's predecessor may have written it meanwhile.

        Raises:
            InputError: it is damaged.
        """
        async with self._one_at_a_time:
            self._obey(await anyio.to_thread.run_sync(self._file.read))

    async def endpoints(self) -> Page:
        """`{endpoints: [row], leaving: [row], absent: [row], discovery: {waits: [text], problems: number}}`.

        All of them by id, those that are gone and have requests in flight, the words about all that are not there, and
        why there may be more than are known.
        """
        absent = [
            {"id": one, "state": word.state, "weight": word.weight, "who": word.who}
            for one, word in sorted(self._overrides.items())
            if one not in self._store
        ]
        now_rows = [
            page_row(self._store, self._health, one, self._overrides.get(one.id))
            for one in sorted(self._store.endpoints(), key=lambda one: one.id)
        ]
        leaving = [leaving_row(one, self._store.ledger.in_flight(one.id)) for one in self._leaving()]
        return {"endpoints": now_rows, "leaving": leaving, "absent": absent, "discovery": self._telling()}

    async def cordon(self, ids: Sequence[str], selector: str | None, who: str) -> Page:
        """Let them get nothing new; what they have goes on."""
        return await self._say(ids, selector, who, lambda one, word: replace(word, state=EndpointState.CORDONED))

    async def uncordon(self, ids: Sequence[str], selector: str | None, who: str) -> Page:
        """Let them get requests again, also against a file or label that cordons them."""
        return await self._say(ids, selector, who, self._uncordoned)

    async def weigh(self, ids: Sequence[str], selector: str | None, weight: str, who: str) -> Page:
        """Give them this weight, 0 to 1, or with `default` the one that discovery says."""
        number = None if weight == DEFAULT_WEIGHT else read_weight(weight)
        if number is None and weight != DEFAULT_WEIGHT:
            expected = f"a number from 0 to 1, or {DEFAULT_WEIGHT}"
            raise InputError([Problem("CONFIG_INVALID", "not a weight", None, "weight", expected, weight[:80])])
        return await self._say(ids, selector, who, lambda one, word: replace(word, weight=number))

    # -- how -------------------------------------------------------------------------------------

    def _uncordoned(self, endpoint_id: str, word: Override) -> Override:
        """A cordon is taken back; what goes over a file or label stays, also while nobody knows what those say."""
        discovered = self._store.discovered(endpoint_id)
        if discovered is None:
            goes_over = word.state is EndpointState.ACTIVE
        else:
            goes_over = discovered.state is EndpointState.CORDONED
        return replace(word, state=EndpointState.ACTIVE if goes_over else None)

    def _telling(self) -> Page:
        discovery = self.discovery()
        if discovery is None:
            return {"waits": [], "problems": 0}
        return {"waits": [printable(text) for text in discovery.not_ready], "problems": len(discovery.problems)}

    def _follow(self, event: EndpointEvent) -> None:
        one = event.endpoint
        if not isinstance(event, Delete):
            self._left.pop(one.id, None)
        elif self._store.ledger.in_flight(one.id):
            self._left[one.id] = one
            if len(self._left) >= self._look_at:
                self._look_at = max(_LEAVING_KEPT, 2 * len(self._leaving()))

    def _leaving(self) -> Sequence[EndpointMetadata]:
        """Those that are gone and have something in flight still; forgets the others."""
        in_flight = self._store.ledger.in_flight
        self._left = {one: endpoint for one, endpoint in sorted(self._left.items()) if in_flight(one)}
        return tuple(self._left.values())

    async def _say(self, ids: Sequence[str], selector: str | None, who: str, word: Word) -> Page:
        async with self._one_at_a_time:
            chosen = self._chosen(ids, selector)
            at_s = self._wall()
            words = {
                one: replace(word(one, self._overrides.get(one, Override())), who=who, at_s=at_s) for one in chosen
            }
            overrides = with_word(self._overrides, words)
            await anyio.to_thread.run_sync(self._file.write, overrides)
            self._obey(overrides)
        return {"endpoints": [self._said(one) for one in chosen]}

    def _said(self, endpoint_id: str) -> Page:
        metadata = self._store.get(endpoint_id)
        return {
            "id": endpoint_id,
            "state": None if metadata is None else str(metadata.state),
            "weight": None if metadata is None else metadata.weight,
            "in_flight": self._store.ledger.in_flight(endpoint_id),
        }

    def _obey(self, overrides: Overrides) -> None:
        for one in self._overrides.keys() | overrides.keys():
            word = overrides.get(one, Override())
            self._store.override(one, state=word.state, weight=word.weight)
        self._overrides = overrides

    def _chosen(self, ids: Sequence[str], selector: str | None) -> list[str]:
        """The ids that a command means, each once.

        Raises:
            InputError: neither or both are given, an id is unknown or not unique, or nothing matches.
        """
        if bool(ids) == (selector is not None):
            problem = Problem("CONFIG_INVALID", "name endpoints by id, or by one label selector", hint=_LOOK)
            raise InputError([problem])
        if selector is not None:
            matches = read_selector(selector).matches
            chosen = [one.id for one in self._store.endpoints() if matches(one.labels)]
            if not chosen:
                message = f"no endpoint has labels that match {printable(selector)!r}"
                raise InputError([Problem("UNKNOWN_ENDPOINT", message, hint=_LOOK)])
            return chosen
        known: dict[str, list[str]] = {}
        there = {one.id for one in (*self._store.endpoints(), *self._leaving())}
        for endpoint_id in sorted(there | self._overrides.keys()):
            for name in {endpoint_id, endpoint_id.partition("/")[2]}:
                known.setdefault(name, []).append(endpoint_id)
        unclear = [name for name in ids if len(known.get(name, ())) != 1]
        if unclear:
            guessed = frozenset(unclear[:_GUESSED] if len(known) <= _COMPARED else ())
            raise InputError([_unclear(name, known, guesses=name in guessed) for name in unclear])
        return list(dict.fromkeys(known[name][0] for name in ids))


def _unclear(name: str, known: Mapping[str, Sequence[str]], *, guesses: bool) -> Problem:
    found = known.get(name, ())
    if found:
        return Problem(
            "UNKNOWN_ENDPOINT", f"{name!r} is the name of several: {', '.join(found)}", hint="write the whole id"
        )
    near = difflib.get_close_matches(name, known, n=1) if guesses else []
    hint = f"did you mean {near[0]}? {_LOOK}" if near else _LOOK
    return Problem("UNKNOWN_ENDPOINT", f"no endpoint has the id {printable(name)!r}", hint=hint)


def _tell_of_labels(event: EndpointEvent) -> None:
    if isinstance(event, Upsert):
        for problem in label_problems(event.endpoint):
            logger.warning("endpoint_label_ignored id=%s %s", event.endpoint.id, printable(problem))
