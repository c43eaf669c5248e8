"""What a new version of a plugin changes for who uses it: its types, what they declare, and their parameters. Pure.

What types declare is their process' own word. Their parameters are told to nobody before they are used, and are read from the
source: the fields of a dataclass that `@….type("name", parameters=Class)` names in the same file. What is put together in
any other way is not seen.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hotbay_sdk.protocol import TypeDeclaration

__all__ = ["Described", "changes_between", "parameters_in"]

Parameters = Mapping[str, Mapping[str, str]]
"""Type → field → `annotation` or `annotation = default`, as it stands in the source."""

_LISTS: Final = ("points", "reads", "consumes", "optional", "produces", "claims")
_VALUES: Final = ("rowwise", "concurrency", "state_versions", "needs_restart", "drained", "every_chunk")


@dataclass(frozen=True, slots=True)
class Described:
    """A version as others see it."""

    types: Mapping[str, TypeDeclaration] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=dict)


def changes_between(before: Described, after: Described) -> tuple[str, ...]:
    """One phrase for each difference, types first; empty when others see none."""
    found = [f"+type {name}" for name in sorted(after.types.keys() - before.types.keys())]
    found += [f"-type {name}" for name in sorted(before.types.keys() - after.types.keys())]
    for name in sorted(before.types.keys() & after.types.keys()):
        found += [f"{name} {what}" for what in _declared(before.types[name], after.types[name])]
        old, new = before.parameters.get(name, {}), after.parameters.get(name, {})
        found += [f"{name} parameter {what}" for what in _fields(old, new)]
    return tuple(found)


def _declared(before: TypeDeclaration, after: TypeDeclaration) -> Iterator[str]:
    for name in _LISTS:
        old, new = set(getattr(before, name)), set(getattr(after, name))
        words = [*(f"+{word}" for word in sorted(new - old)), *(f"-{word}" for word in sorted(old - new))]
        if words:
            yield f"{name} {' '.join(words)}"
    for name in _VALUES:
        if getattr(before, name) != getattr(after, name):
            yield f"{name} {getattr(before, name)} → {getattr(after, name)}"


def _fields(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None:
            yield f"+{name}: {new}"
        elif new is None:
            yield f"-{name}"
        elif old != new:
            yield f"{name}: {old} → {new}"


def parameters_in(sources: Iterable[str]) -> Parameters:
    """The parameters of all types that are declared in these files. A file that does not parse has none."""
    found: dict[str, Mapping[str, str]] = {}
    for text in sources:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        for name, parameters in _declarations(classes.values()):
            if parameters in classes:
                found[name] = _dataclass_fields(classes[parameters])
    return found


def _declarations(classes: Iterable[ast.ClassDef]) -> Iterator[tuple[str, str]]:
    """Name of a type and of the class of its parameters."""
    for call in (call for node in classes for call in node.decorator_list if isinstance(call, ast.Call)):
        is_type = isinstance(call.func, ast.Attribute) and call.func.attr == "type"
        name = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        for keyword in call.keywords if is_type and isinstance(name, str) else ():
            if keyword.arg == "parameters" and isinstance(keyword.value, ast.Name):
                yield str(name), keyword.value.id


def _dataclass_fields(node: ast.ClassDef) -> Mapping[str, str]:
    return {
        each.target.id: ast.unparse(each.annotation) + (f" = {ast.unparse(each.value)}" if each.value else "")
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
