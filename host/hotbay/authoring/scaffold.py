"""A plugin's first project: its names, and the text of its files. Pure.

What an author gives is one name, which becomes the plugin's id, part of a path and part of a program: it is checked
before anything is made of it. The project passes its own tests and can be packed as it is.
"""

import keyword
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from string import Template
from typing import Final

from hotbay.authoring.data_templates import DATA_BODIES
from hotbay.authoring.request_templates import REQUEST_BODIES
from hotbay.authoring.templates import GITIGNORE, HOT_BODIES, PYPROJECT, README, REQUEST, TESTS, Body
from hotbay.errors import InputError, Problem
from hotbay.packages.manifest import check_label

BODIES: Final = {**HOT_BODIES, **DATA_BODIES, **REQUEST_BODIES}
POINTS: Final = tuple(BODIES)
_TAKEN: Final = frozenset({"hotbay", "hotbay_sdk", "msgpack", "tests"})
_NAME_HINT: Final = (
    "A name has 1 to 63 lower-case letters, digits and dashes, and begins and ends with none of the latter."
)

__all__ = ["POINTS", "Names", "check_name", "names_of", "project_files"]


@dataclass(frozen=True, slots=True)
class Names:
    """All names of a project. `module` can be imported beside the SDK and the standard library."""

    id: str
    module: str
    type: str
    cls: str


def check_name(name: str) -> str:
    """Return the name. Raises `InputError` INVALID_NAME for what is no DNS label of at most 63 characters."""
    try:
        return check_label(name)
    except ValueError as error:
        shown = ascii(name if len(name) <= 80 else f"{name[:80]}…")
        raise InputError([Problem("INVALID_NAME", f"{shown} {error}", hint=_NAME_HINT)]) from error


def names_of(name: str, point: str) -> Names:
    """Names for a plugin called `name` that answers `point`, one of `POINTS`. Raises `InputError` INVALID_NAME."""
    check_name(name)
    type_name = check_name(name if name.endswith(f"-{point}") or name == point else f"{name}-{point}")
    words = "".join(word.capitalize() for word in type_name.split("-"))
    return Names(name, _module(name), type_name, words if words.isidentifier() else f"Plugin{words}")


def _module(name: str) -> str:
    module = name.replace("-", "_")
    taken = module in _TAKEN or module in sys.stdlib_module_names or keyword.iskeyword(module)
    return f"plugin_{module}" if taken or not module.isidentifier() else module


def project_files(names: Names, point: str, *, publisher: str) -> Mapping[str, str]:
    """Path inside the project → text."""
    body: Body = BODIES[point]
    values = {
        "id": names.id,
        "module": names.module,
        "type": names.type,
        "cls": names.cls,
        "publisher": publisher,
        "point": point,
        "article": "an" if point[0] in "aeiou" else "a",
        "does": body.does,
        "reads": body.reads,
        "parameters": body.parameters,
        "call": _call_line(names.type, body),
        "conformance": body.conformance,
        "data_types": "" if body.sees_requests else f'data_types = ["{names.type}"]\n',
        "test_imports": body.test_imports,
        "tools": body.tools,
    }

    def filled(text: str) -> str:
        return Template(text).substitute(values)

    return {
        ".gitignore": GITIGNORE,
        "README.md": filled(README),
        **({"endpoints.yaml": body.endpoints, "request.json": REQUEST} if body.sees_requests else {}),
        **{path: filled(text) for path, text in body.files.items()},
        f"{names.module}/__init__.py": filled(body.code),
        "pyproject.toml": filled(PYPROJECT),
        f"tests/test_{names.module}.py": filled(TESTS + body.tests),
    }


def _call_line(type_name: str, body: Body) -> str:
    remark = "   # and --request request.json" if body.sees_requests else ""
    return f"{body.before}$ hotbay call {type_name} {body.call}{remark}\n"
