"""Who makes the data that plugins consume, and in which order producers run: a graph over declared columns. Pure.

A column is `Key.field`. Several producers may make one of the same name; who consumes it says whose it wants, as in
`Key/producer.field`, and otherwise gets that of the only producer, or of several that of the key's default type. A producer
of a column, needed or optional, runs before whoever consumes it. What nobody makes is missing: absent for who takes it as
optional, a mistake for who needs it. Which columns cross to a plugin is said here alone: what it did not declare never does.
"""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Final

from hotbay_sdk.protocol.calls import ColumnName, column_name

from hotbay.errors import Problem
from hotbay.scheduling.batch import Consumed, data_key
from hotbay.scheduling.binding import Point
from hotbay.scheduling.fields import NO_FACTS, instance_needs
from hotbay.scheduling.plan import RefPlan

__all__ = ["DataGraph"]

NO_REASONS: Final[Mapping[str, str]] = MappingProxyType({})

GIVEN_DATA: Final = frozenset(
    {Point.FILTER, Point.SCORE, Point.PICK, Point.PROFILE_HANDLER, Point.PRODUCE, Point.ADMIT, Point.PRE_REQUEST}
)
"""Points that come after the producers. The others cannot be given what is not made yet, or is gone."""


class DataGraph:
    """The producers among refs, what each ref gets, and what is wrong with it.

    Args:
        refs: in the order of the configuration.
        defaults: key → type whose instance is meant where several make the key.
        withheld: key → why nothing is made for it by itself.
        complete: whether every plugin has said what it makes. Until then nothing is known to be missing.
    """

    def __init__(
        self,
        refs: Sequence[RefPlan],
        defaults: Mapping[str, str],
        *,
        withheld: Mapping[str, str] = NO_REASONS,
        complete: bool,
    ) -> None:
        self.problems: list[Problem] = []
        self._defaults = defaults
        self._withheld = withheld
        self._complete = complete
        self._refs = {ref.name: ref for ref in refs}
        self.producers = [ref for ref in refs if ref.has(Point.PRODUCE)]
        self._makers: dict[str, list[RefPlan]] = {}
        for ref in self.producers:
            for column in ref.produces:
                self._makers.setdefault(column, []).append(ref)
        self._sources = {ref.name: tuple(self._found(ref)) for ref in refs}

    def consumed(self, refs: Sequence[RefPlan]) -> tuple[Consumed, ...]:
        """What crosses with a call to these refs."""
        return tuple(dict.fromkeys(source for ref in refs for source, _ in self._sources[ref.name]))

    def maker_of(self, column: str) -> str | None:
        """The ref whose column the host itself looks at: of several that make it the default type's, else the first."""
        makers = self._makers.get(column, [])
        default = self._defaults.get(column.partition(".")[0])
        found = [maker for maker in makers if maker.type == default] or makers
        return found[0].name if found else None

    def layers(self) -> list[list[RefPlan]] | Problem:
        """Producers in the order of their data: those of one layer need nothing of each other."""
        graph = {ref.name: {maker for _, maker in self._sources[ref.name]} - {ref.name} for ref in self.producers}
        sorter = TopologicalSorter(graph)
        try:
            sorter.prepare()
        except CycleError as error:
            names = " -> ".join(str(name) for name in error.args[1])
            return Problem(
                "CONFIG_INVALID",
                f"producers need each other in a circle: {names}",
                place=self._refs[str(error.args[1][0])].place,
                hint="take one of them out, or let one of them consume as optional what it can do without",
            )
        found: list[list[RefPlan]] = []
        while sorter.is_active():
            ready = set(sorter.get_ready())
            found.append([ref for ref in self.producers if ref.name in ready])
            sorter.done(*ready)
        return found

    def _found(self, ref: RefPlan) -> list[tuple[Consumed, str]]:
        """The columns that a ref gets, and who makes each."""
        if ref.declaration is None:
            return []
        facts = NO_FACTS if ref.generation is None else ref.generation.facts.get(ref.name, NO_FACTS)
        needed, optional = instance_needs(ref.declaration, facts)
        # Who answers no call, as a decider, says what it needs on behalf of who asks it inside their process.
        asked = [point for point in Point if ref.has(point)]
        if (needed or optional) and asked and GIVEN_DATA.isdisjoint(asked):
            self._problem(
                ref, f"'{ref.name}' consumes {', '.join((*needed, *optional))}, and acts before anything is made"
            )
            return []
        found: list[tuple[Consumed, str]] = []
        for name in (*needed, *optional):
            maker = self._maker(ref, name, needed=name in needed)
            if maker is not None:
                column = column_name(name)
                assert column is not None, "its maker was found by it"
                found.append((Consumed(name, data_key(maker.name, f"{column.key}.{column.field}")), maker.name))
        return found

    def _maker(self, ref: RefPlan, name: str, *, needed: bool) -> RefPlan | None:
        column = column_name(name)
        if column is None:
            self._problem(ref, f"'{ref.name}' consumes '{name}': a column is Key.field, or Key/producer.field")
            return None
        makers = self._makers.get(f"{column.key}.{column.field}", [])
        if column.producer:
            makers = [maker for maker in makers if maker.name == column.producer]
        elif len(makers) > 1:
            return self._default(ref, name, column, makers)
        if not makers and needed and self._complete:
            self._missing(ref, name, column)
        return makers[0] if makers else None

    def _default(self, ref: RefPlan, name: str, column: ColumnName, makers: Sequence[RefPlan]) -> RefPlan | None:
        default = self._defaults.get(column.key)
        of_type = [maker for maker in makers if maker.type == default]
        named = [maker for maker in of_type if maker.name == default] or of_type
        if len(named) == 1:
            return named[0]
        names = " and ".join(f"'{maker.name}'" for maker in makers)
        self._problem(
            ref,
            f"'{ref.name}' consumes {name}, which {names} produce",
            f"name one of them where '{ref.name}' can be told whose it takes, or keep one of them under plugins",
        )
        return None

    def _missing(self, ref: RefPlan, name: str, column: ColumnName) -> None:
        default = self._defaults.get(column.key)
        whose = (
            f"and no '{column.producer}' that makes it is under plugins"
            if column.producer
            else "which nothing produces"
        )
        hint = f"list one that does under plugins{f', as type {default}' if default is not None else ''}"
        hint = self._withheld.get(column.key, hint)
        self._problem(ref, f"'{ref.name}' of type '{ref.type}' needs {name}, {whose}", hint)

    def _problem(self, ref: RefPlan, message: str, hint: str = "") -> None:
        self.problems.append(Problem("CONFIG_INVALID", message, place=ref.place, hint=hint))
