"""Every parameter of every first-party type holds as it is written, is as its README says where it is not, and is read by code.

C26: a parameter that parses and is ignored, or that is 0 by accident where nobody wrote it, is what operators lose days with.
"""

import ast
import dataclasses
import importlib
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hotbay.config.documents import decode_text
from hotbay.config.picker_config import PluginEntry, load_picker_config
from hotbay_sdk import ParameterError
from hotbay_sdk._parameters import parse_dataclass
from hotbay_sdk._plugin import PluginType

ROOT = Path(__file__).resolve().parents[3]
PROJECTS = sorted(file.parent for file in (ROOT / "plugins").glob("*/pyproject.toml"))


def _package(project: Path) -> str:
    return f"hotbay_{project.name.replace('-', '_')}"


def _types() -> dict[str, tuple[Path, PluginType]]:
    found = {}
    for project in PROJECTS:
        plugin = importlib.import_module(_package(project)).plugin
        found |= {name: (project, declared) for name, declared in plugin._types.items()}
    return found


TYPES = _types()

# What a type cannot do without.
NEEDED: Mapping[str, Mapping[str, object]] = {
    "by-label": {"label": "a", "validValues": ["x"]},
    "endpoint-attribute-filter": {"attribute": "a", "algorithm": {"type": "threshold", "operator": "lt", "value": 1.0}},
    "endpoint-attribute-scorer": {
        "attribute": "a",
        "algorithm": {"type": "linear_lower_is_better", "adaptiveRange": {}},
    },
    "header-label-affinity-scorer": {"header": "x-a", "label": "a"},
    "session-id-producer": {"headerName": "x-session-id"},
    "utilization-filter": {"conditions": [{"metric": "waiting-queue", "maxValue": 1}]},
}
# Values of fields that a value of their kind alone does not do for, with what they go together with.
WRITTEN: Mapping[tuple[str, str], Mapping[str, object]] = {
    ("by-label-selector", "matchExpressions"): {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
    ("label-selector-filter", "matchExpressions"): {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
    ("priority-holdback-policy", "ceilings"): {"domain": "explicit", "ceilings": [{"priority": -1, "ceiling": 0.5}]},
    ("priority-holdback-policy", "domain"): {"domain": "value", "minCeiling": 0.5},
    ("priority-holdback-policy", "maxCeiling"): {"minCeiling": 0.5, "maxCeiling": 0.75},
    ("priority-holdback-policy", "shape"): {"minCeiling": 0.5, "shape": "linear"},
    ("session-id-producer", "cookieName"): {"cookieName": "session"},
    ("utilization-filter", "conditions"): {"conditions": [{"metric": "kv-cache-utilization", "maxValue": 0.5}]},
}


def _parse(declared: PluginType, parameters: Mapping[str, object]) -> Any:
    assert declared.parameters is not None
    if dataclasses.is_dataclass(declared.parameters):
        assert isinstance(declared.parameters, type)
        return parse_dataclass(declared.parameters, parameters)
    return declared.parameters(dict(parameters))


def _fields() -> Iterator[tuple[str, str]]:
    for name, (_, declared) in TYPES.items():
        if isinstance(declared.parameters, type) and dataclasses.is_dataclass(declared.parameters):
            yield from ((name, field.name) for field in dataclasses.fields(declared.parameters) if field.init)


def _others(kind: object, default: object) -> Iterator[object]:
    """Values of a kind that are not the default, the likeliest to be taken first."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        for argument in arguments:
            yield from _others(argument, default)
    elif origin is Literal:
        yield from (value for value in arguments if value != default)
    elif origin in (list, tuple, Sequence):
        yield from ([value] for value in _others(arguments[0], None))
    elif origin in (dict, Mapping):
        yield {"a": "b"}
    elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
        yield from _others_of_fields(kind)
    else:
        yield from _plain_others(kind, default)


def _others_of_fields(kind: type) -> Iterator[object]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        yield from ({field.name: value} for value in _others(hints[field.name], field.default))


def _plain_others(kind: object, default: object) -> Iterator[object]:
    if kind is bool:
        yield not default
    elif kind is str:
        yield from ("other", "7s", "x-other", "least", "prefill-first")
    elif kind in (int, float):
        number = default if isinstance(default, int | float) else 0
        make: Any = kind
        yield from (value for it in (number + 1, number / 2 + 0.1, number * 2, 7) if (value := make(it)) != default)


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _holds(found: object, written: object) -> bool:
    """Whether what is in force is what was written, where something was."""
    found = _plain(found)
    if isinstance(written, Mapping) and isinstance(found, Mapping):
        return all(name in found and _holds(found[name], value) for name, value in written.items())
    if isinstance(written, Sequence) and not isinstance(written, str) and isinstance(found, list):
        return len(found) == len(written) and all(map(_holds, found, written))
    return found == written


FIELDS = [pytest.param(name, field, id=f"{name}-{field}") for name, field in sorted(_fields())]


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_c26_value_that_is_written_is_the_one_in_force(name: str, field: str) -> None:
    _, declared = TYPES[name]
    kind = typing.get_type_hints(declared.parameters)[field]
    written = WRITTEN.get((name, field))
    values = list(_others(kind, _default(name, field)))
    tried = [{**NEEDED.get(name, {}), field: value} for value in values] if written is None else [written]
    taken = []
    for parameters in tried:
        try:
            found = _parse(declared, parameters)
        except ParameterError:
            continue
        taken.append(parameters)
        assert _holds(getattr(found, field), parameters[field]), (
            f"{parameters[field]!r} became {getattr(found, field)!r}"
        )
    assert taken or not values, f"none is taken of {tried}"


def _default(name: str, field: str) -> object:
    kind: Any = TYPES[name][1].parameters
    return next(it.default for it in dataclasses.fields(kind) if it.name == field)


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_c26_parameter_is_read_by_code_or_the_readme_says_that_it_is_not(name: str, field: str) -> None:
    project, _ = TYPES[name]
    lines = _readme_lines(project, field)
    assert lines, f"README of {project.name} does not name `{field}`"
    says_so = any(re.search(r"\b(ignored|no effect|accepted|the only one)\b", line) for line in lines)
    assert says_so or field in _attributes_read(project), f"nothing in {project.name} reads .{field}"


def _readme_lines(project: Path, field: str) -> list[str]:
    """Rows of tables, and paragraphs as one line each."""
    text = decode_text((project / "README.md").read_bytes(), file="README.md")
    lines = re.sub(r"\n(?![|\n#-]|```)", " ", text).splitlines()
    return [line for line in lines if re.search(rf"\b{re.escape(field)}\b", line)]


def _attributes_read(project: Path) -> frozenset[str]:
    found = set()
    for file in (project / _package(project)).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
    return frozenset(found)


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_c26_default_is_the_one_of_the_readme(name: str, field: str) -> None:
    default = _default(name, field)
    if isinstance(default, bool) or not isinstance(default, int | float) or default == 0:
        return
    lines = _readme_lines(TYPES[name][0], field)
    number = r"(?<![\w.])[0-9][0-9,]*(?:\.[0-9]+)?(?:e[0-9]+)?"
    numbers = {float(found.replace(",", "")) for line in lines for found in re.findall(number, line)}
    assert abs(default) in numbers, f"expected {default} in {lines}"


def _configured() -> list[tuple[str, PluginEntry]]:
    files = [*(ROOT / "manifests").glob("picker-*.yaml"), *(ROOT / "tests" / "data" / "reference_configs").iterdir()]
    configs = {file.name: load_picker_config(file.read_text(), file=file.name) for file in sorted(files)}
    return [
        (f"{name}-{it.name}", it)
        for name, config in configs.items()
        for it in config.plugins
        if it.parameters and it.type in TYPES
    ]


@pytest.mark.parametrize("entry", [pytest.param(entry, id=name.replace("/", "-")) for name, entry in _configured()])
def test_parameters_of_our_configurations_are_taken_by_their_types(entry: PluginEntry) -> None:
    _, declared = TYPES[entry.type]
    assert declared.parameters is not None
    _parse(declared, entry.parameters)
