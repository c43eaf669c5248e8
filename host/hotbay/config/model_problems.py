"""Words the errors of pydantic as problems of a document: where, what was expected, what was found.

Pure. pydantic's locations are paths by alias, which are paths of the document, so that every error gets the
file, line and column of its key or value.
"""

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Final, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hotbay.config.documents import Document
from hotbay.config.host_fields import NOT_SUPPORTED, REFUSED, Section
from hotbay.config.wording import Path, described, not_supported, path_text, unknown_field
from hotbay.errors import Problem

_EXPECTED: Final = {
    "string_type": "a text",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "string_too_short": "a text that is not empty",
    "string_pattern_mismatch": "a name of letters, digits, '.', '_' and '-'",
    "finite_number": "a finite number",
}
_QUOTE_IT: Final = "put it in quotes if a text is meant"
# What pydantic puts behind the location of an error that is about a mapping's key.
_KEY_MARK: Final = "[key]"


def problems_of(error: ValidationError, model: type[Section], document: Document) -> Iterator[Problem]:
    """Yield each error as a problem of `document`, which `model` refused."""
    for details in error.errors(include_url=False):
        path: Path = tuple(part for part in details["loc"] if part != _KEY_MARK)
        yield _problem(details, path, model, document)


def _problem(details: ErrorDetails, path: Path, model: type[Section], document: Document) -> Problem:
    kind = details["type"]
    place = document.place(path)
    if kind == "extra_forbidden":
        section = _section_at(model, path[:-1])
        place = document.key_place(path)
        if str(path[-1]) in section.later:
            return not_supported(path, place, section.later[str(path[-1])])
        return unknown_field(path, place, _field_names(section))
    context = {key: str(text) for key, text in details.get("ctx", {}).items()}
    if kind == NOT_SUPPORTED:
        problem = not_supported(path, place, context["hint"])
        return Problem(problem.code, f"{context['found']} is {problem.message}", place, problem.path, hint=problem.hint)
    if kind == "missing":
        section = _section_at(model, path[:-1])
        hint = next((f.description for n, f in section.model_fields.items() if path[-1] in (f.alias, n)), None)
        return Problem("CONFIG_INVALID", "this field is required", place, path_text(path), hint=hint or "")
    found = context["found"] if kind == REFUSED else described(details["input"])
    expected = _EXPECTED.get(kind) or context.get("expected") or details["msg"].removeprefix("Input should be ")
    message = "not a value for this field"
    return Problem("CONFIG_INVALID", message, place, path_text(path), expected, found, _hint(kind, details, context))


def _hint(kind: str, details: ErrorDetails, context: Mapping[str, str]) -> str:
    if kind == "string_type" and isinstance(details["input"], (bool, int, float)):
        return _QUOTE_IT
    return context.get("hint", "")


def _section_at(model: type[Section], path: Path) -> type[Section]:
    """Return the section of the document that `path` leads to."""
    section = model
    annotation: object = model
    for part in path:
        if isinstance(annotation, type) and issubclass(annotation, Section):
            section = annotation
            annotation = next(f.annotation for n, f in section.model_fields.items() if part in (f.alias, n))
        else:
            annotation = get_args(annotation)[1 if get_origin(annotation) is Mapping else 0]
    # A section that may be absent, or off.
    annotation = next((one for one in get_args(annotation) if one is not NoneType), annotation)
    assert isinstance(annotation, type), "only sections have unknown fields"
    assert issubclass(annotation, Section), "only sections have unknown fields"
    return annotation


def _field_names(section: type[Section]) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()]
