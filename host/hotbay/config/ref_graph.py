"""Which plugins are made before which: a graph over parameters that name other plugins. Pure.

Paths to such parameters come with the type, such as `deciders.prefill` or `plugins.*.pluginRef`; `*` is every key of a mapping
or item of a list, and a list that a path ends at or passes is walked item by item. A path that leads nowhere names nothing, or what
stands behind its `=`, as in `deciderPluginName=prefix-based-pd-decider`.
"""

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from hotbay.config.picker_model import PickerConfig, PluginEntry
from hotbay.config.system_defaults import FactsOf
from hotbay.config.wording import Path, nearest, path_text, quoted
from hotbay.errors import Problem

__all__ = ["construction_problems", "named_refs", "ordered"]


def named_refs(parameters: object, paths: Sequence[str]) -> tuple[tuple[Path, str], ...]:
    """Where inside the parameters other plugins are named, and the names, each place once."""
    found: dict[Path, str] = {}
    for path in paths:
        steps, _, default = path.partition("=")
        named = dict(_follow(parameters, tuple(steps.split(".")), ()))
        found |= named or ({(steps,): default} if default else {})
    return tuple(found.items())


def _follow(value: object, steps: tuple[str, ...], at: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, list | tuple):
        rest = steps[1:] if steps and steps[0] == "*" else steps
        for index, item in enumerate(value):
            yield from _follow(item, rest, (*at, index))
    elif not steps:
        if isinstance(value, str) and value:
            yield at, value
    elif isinstance(value, Mapping):
        for key in value if steps[0] == "*" else (steps[0],):
            if key in value:
                yield from _follow(value[key], steps[1:], (*at, key))


def construction_problems(config: PickerConfig, facts: FactsOf) -> Iterator[Problem]:
    """References in parameters to plugins that there are not, and circles."""
    plugins = {entry.name: entry for entry in config.plugins}
    graph: dict[str, list[str]] = {}
    for entry in config.plugins:
        graph[entry.name] = []
        for at, name in _refs(entry, facts):
            if name in plugins:
                graph[entry.name].append(name)
                continue
            path: Path = (*entry.path, "parameters", *at)
            guess = nearest(name, plugins)
            hint = f"did you mean {quoted(guess)}?" if guess else "declare it under `plugins`"
            message = f"plugin {quoted(entry.name)} has a dependency on the unregistered plugin {quoted(name)}"
            yield Problem("UNDEFINED_REF", message, config.document.place(path), path_text(path), hint=hint)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # The error's list goes from what is needed to what needs it.
        circle = list(dict.fromkeys(str(name) for name in reversed(error.args[1])))
        first = min(circle, key=list(plugins).index)
        names = " needs ".join(quoted(name) for name in (*circle, circle[0]))
        entry = plugins[first]
        message = f"cycle detected: {names}"
        hint = "one of them has to do without the other"
        yield Problem("CONFIG_INVALID", message, entry.place, path_text(entry.path), hint=hint)


def _refs(entry: PluginEntry, facts: FactsOf) -> tuple[tuple[Path, str], ...]:
    known = facts(entry.type)
    return named_refs(entry.parameters, known.refs) if known is not None else ()


def ordered(names: Sequence[str], needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The names with each behind those that it needs, and else in their order. What is none of these counts for nothing.

    Raises `CycleError`, which is a `ValueError`.
    """
    mine = frozenset(names)
    sorter = TopologicalSorter({name: [other for other in needs.get(name, ()) if other in mine] for name in names})
    sorter.prepare()
    position = {name: index for index, name in enumerate(names)}
    placed: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=position.__getitem__)
        placed += ready
        sorter.done(*ready)
    return tuple(placed)
