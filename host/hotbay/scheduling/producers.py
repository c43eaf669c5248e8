"""Which producers a plan needs and in which order they run: a graph over declared columns. Pure."""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from hotbay.errors import Problem
from hotbay.scheduling.plan import RefPlan


def layers(producers: Sequence[RefPlan]) -> list[list[RefPlan]] | Problem:
    """Producers in the order of their data: those of one layer need nothing of each other."""
    owner = {column: ref.name for ref in reversed(producers) for column in _produces(ref)}
    graph = {ref.name: {owner[c] for c in _consumes(ref) if c in owner} - {ref.name} for ref in producers}
    sorter = TopologicalSorter(graph)
    try:
        sorter.prepare()
    except CycleError as error:
        names = " -> ".join(str(name) for name in error.args[1])
        return Problem("CONFIG_INVALID", f"producers need each other in a circle: {names}")
    found: list[list[RefPlan]] = []
    while sorter.is_active():
        ready = set(sorter.get_ready())
        found.append([ref for ref in producers if ref.name in ready])
        sorter.done(*ready)
    return found


def shared_columns(producers: Sequence[RefPlan]) -> list[Problem]:
    """A problem for every column that a ref produces and one before it already does."""
    owner: dict[str, str] = {}
    problems: list[Problem] = []
    for ref in producers:
        for column in _produces(ref):
            other = owner.setdefault(column, ref.name)
            if other != ref.name:
                problems.append(
                    Problem(
                        "CONFIG_INVALID",
                        f"'{ref.name}' and '{other}' both produce {column}",
                        place=ref.place,
                        hint="keep one of them under plugins",
                    )
                )
    return problems


def missing_producers(refs: Sequence[RefPlan], defaults: Mapping[str, str]) -> tuple[str, ...]:
    """Types to create by themselves: default producers of keys that are consumed and that no ref produces."""
    produced = {column for ref in refs for column in _produces(ref)}
    configured = {ref.type for ref in refs}
    wanted: list[str] = []
    for ref in refs:
        for column in _consumes(ref):
            default = defaults.get(column.split(".", 1)[0])
            if column not in produced and default is not None and default not in configured:
                wanted.append(default)
    return tuple(dict.fromkeys(wanted))


def _produces(ref: RefPlan) -> tuple[str, ...]:
    return ref.declaration.produces if ref.declaration is not None else ()


def _consumes(ref: RefPlan) -> tuple[str, ...]:
    return ref.declaration.consumes if ref.declaration is not None else ()
