"""What the parts of a compilation share: the refs, what each of them is given, bindings, and the problems found. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from hotbay_sdk.protocol.calls import InstanceFacts

from hotbay.errors import InputError, Place, Problem
from hotbay.rpc.leases import Generation
from hotbay.scheduling.batch import Consumed
from hotbay.scheduling.binding import ALLOWED_POLICIES, Binding, BindingOptions, Point, bind
from hotbay.scheduling.data_graph import DataGraph
from hotbay.scheduling.fields import (
    NO_FACTS,
    instance_reads,
    is_table,
    not_allowed,
    unknown_reads,
    wire_columns,
    wire_fields,
)
from hotbay.scheduling.plan import PlanInput, RefPlan
from hotbay.scheduling.sent_tables import FEATURE as SIDE_TABLES_FEATURE

__all__ = ["NO_OPTIONS", "Compiling", "Needs"]

NO_OPTIONS: Final = BindingOptions()


class Needs(NamedTuple):
    """What crosses with a call: columns and side tables of endpoints, fields of requests, data."""

    columns: tuple[str, ...]
    fields: tuple[str, ...]
    consumed: tuple[Consumed, ...]


class Compiling:
    """One compilation under way. Problems are gathered, so that all of them are told at once."""

    def __init__(self, given: PlanInput) -> None:
        self.given = given
        self.refs = {ref.name: ref for ref in given.refs}
        self.problems: list[Problem] = []
        self.all_declared = all(ref.declaration is not None for ref in given.refs if ref.plugin_id is not None)
        """Whether every plugin has said what it is."""
        self.data = DataGraph(given.refs, given.default_producers, withheld=given.withheld, complete=self.all_declared)
        self.problems += self.data.problems

    def raise_if_any(self) -> None:
        """Raises `InputError` with every problem found."""
        if self.problems:
            raise InputError(tuple(dict.fromkeys(self.problems)))

    def problem(self, code: str, message: str, place: Place | None, hint: str = "") -> None:
        """Note one."""
        self.problems.append(Problem(code, message, place=place, hint=hint))

    def bind(self, ref: RefPlan, point: Point, weight: float = 1.0) -> Binding:
        """The ref's use at a point, with the operator's wishes."""
        options = self.given.options.get(ref.name, NO_OPTIONS)
        points = [p for p in Point if ref.has(p)]
        # Where no manifest says what a ref that was never READY answers, what fits it shows when it is.
        if (
            points
            and options.on_failure is not None
            and not any(options.on_failure in ALLOWED_POLICIES[p] for p in points)
        ):
            self.problem(
                "CONFIG_INVALID",
                f"bindings.{ref.name}.on_failure: '{options.on_failure}' does not fit a {point}",
                ref.place,
                hint=f"use one of {', '.join(sorted(ALLOWED_POLICIES[point]))}",
            )
        return bind(ref.name, ref.type, point, options, weight)

    def facts(self, ref: RefPlan) -> InstanceFacts:
        """What the ref said of itself when it was made; nothing while it has no process."""
        return NO_FACTS if ref.generation is None else ref.generation.facts.get(ref.name, NO_FACTS)

    def reads(self, ref: RefPlan) -> tuple[str, ...]:
        """What the ref reads."""
        return () if ref.declaration is None else instance_reads(ref.declaration, self.facts(ref))

    def needs(self, refs: Sequence[RefPlan]) -> Needs:
        """Columns of the whole process (so that one transfer per epoch serves all its calls), the rest of `refs`."""
        generation = refs[0].generation
        of_process = [ref for ref in self.given.refs if ref.generation is generation]
        columns = wire_columns(name for ref in of_process for name in self.reads(ref))
        fields = tuple(dict.fromkeys(name for ref in refs for name in self._fields(ref)))
        return Needs(columns, fields, self.data.consumed(refs))

    def _fields(self, ref: RefPlan) -> tuple[str, ...]:
        assert ref.generation is not None, "who is called has a process"
        return wire_fields(self.reads(ref), ref.generation.block_tokens.get(ref.name))

    def callable_refs(self, point: Point) -> list[tuple[RefPlan, Generation]]:
        """Refs that answer a point and have a process, in the order of the configuration."""
        return [(ref, ref.generation) for ref in self.given.refs if ref.generation is not None and ref.has(point)]

    def check_reads(self) -> None:
        """Find what types and instances read that this host does not have, or that was not declared."""
        for ref in self.given.refs:
            if ref.declaration is None:
                continue
            facts = self.facts(ref)
            unknown = unknown_reads((*ref.declaration.reads, *facts.reads))
            if unknown:
                self.problem(
                    "INVALID_PACKAGE",
                    f"type '{ref.type}' reads {', '.join(unknown)}, which this host does not have",
                    ref.place,
                )
            beyond = not_allowed(ref.declaration, facts)
            if beyond:
                self.problem(
                    "INVALID_PACKAGE",
                    f"'{ref.name}' wants {', '.join(beyond)}, which its type '{ref.type}' does not declare",
                    ref.place,
                    hint="list it, or its wildcard, in the type's `reads` or `consumes`, and pack again",
                )
            self._check_tables(ref)

    def _check_tables(self, ref: RefPlan) -> None:
        tables = tuple(filter(is_table, self.reads(ref)))
        if tables and ref.generation is not None and SIDE_TABLES_FEATURE not in ref.generation.features:
            self.problem(
                "INVALID_PACKAGE",
                f"type '{ref.type}' reads {', '.join(tables)}, and its process does not say that it takes side tables: "
                f"expected {SIDE_TABLES_FEATURE} in HELLO's features",
                ref.place,
                hint="pack it with the SDK of this host, or take these out of reads",
            )
