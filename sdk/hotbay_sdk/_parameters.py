"""Strictly fills parameter dataclasses from an operator's map.

Every refusal is a `ParameterError` with the path of the bad field. A whole number is due where the
field is an int, and true is none; a float takes whole numbers; nothing is converted from text.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Union, get_args, get_origin

from hotbay_sdk._errors import ParameterError
from hotbay_sdk._lazy import nearest

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_SEQUENCES: tuple[object, ...] = (list, tuple, Sequence)
_MAPS: tuple[object, ...] = (dict, Mapping)


def parse_dataclass(kind: type, parameters: Mapping[str, object], path: str = "") -> object:
    """Build the dataclass `kind`.

    Raises:
        ParameterError: a field is unknown, missing or of another type, or the dataclass itself
            refused its values by a ValueError.
    """
    assert dataclasses.is_dataclass(kind)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    for name in parameters:
        if name not in fields:
            likely = nearest(str(name), list(fields))
            hint = f", did you mean {likely}?" if likely else f"; known are {', '.join(fields) or 'none'}"
            raise ParameterError(_join(path, str(name)), f"unknown field{hint}")
    hints = typing.get_type_hints(kind)
    values: dict[str, object] = {}
    for name, field in fields.items():
        if name in parameters:
            values[name] = _value(hints[name], parameters[name], _join(path, name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ParameterError(_join(path, name), f"missing, expected {_word(hints[name])}")
    try:
        return kind(**values)
    except ParameterError as error:
        raise ParameterError(_join(path, error.path), error.message) from error
    except ValueError as error:
        raise ParameterError(path, str(error)) from error


def _value(kind: object, value: object, path: str) -> object:
    origin = get_origin(kind)
    if kind is typing.Any or kind is object:
        return value
    if origin is typing.Annotated:
        return _value(get_args(kind)[0], value, path)
    for kinds, parse in _PARSERS:
        if origin in kinds or kind in kinds:
            return parse(kind, value, path)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _nested(kind, value, path)
    return _scalar(kind, value, path)


def _nested(kind: type, value: object, path: str) -> object:
    if not isinstance(value, dict):
        raise _wrong(kind, value, path)
    return parse_dataclass(kind, value, path)


def _choice(kind: object, value: object, path: str) -> object:
    if any(value == choice and type(value) is type(choice) for choice in get_args(kind)):
        return value
    raise _wrong(kind, value, path)


def _scalar(kind: object, value: object, path: str) -> object:
    if kind is float and type(value) in (int, float):
        number = float(value)  # type: ignore[arg-type]  # one of the two types just checked
        if math.isfinite(number):
            return number
    elif kind in (str, int, bool) and type(value) is kind:
        return value
    elif kind in (None, type(None)) and value is None:
        return None
    elif kind not in (*_WORDS, None, type(None)):
        raise TypeError(f"parameter {path}: fields of type {kind} are not supported; declare a parse function instead")
    raise _wrong(kind, value, path)


def _member(kind: object, value: object, path: str) -> object:
    kinds = get_args(kind)
    if value is None and type(None) in kinds:
        return None
    choices = [member for member in kinds if member is not type(None)]
    if len(choices) == 1:
        return _value(choices[0], value, path)
    for choice in choices:
        try:
            return _value(choice, value, path)
        except ParameterError:
            continue
    raise ParameterError(path, f"expected {' or '.join(_word(k) for k in choices)}, found {_found(value)}")


def _sequence(kind: object, value: object, path: str) -> object:
    if not isinstance(value, list):
        raise _wrong(kind, value, path)
    arguments = get_args(kind) or (object, ...)
    if get_origin(kind) is tuple and arguments[1:] != (...,):
        if len(value) != len(arguments):
            raise ParameterError(path, f"expected {len(arguments)} items, found {len(value)}")
        return tuple(_value(k, item, f"{path}[{i}]") for i, (k, item) in enumerate(zip(arguments, value, strict=True)))
    items = [_value(arguments[0], item, f"{path}[{index}]") for index, item in enumerate(value)]
    return items if get_origin(kind) is list or kind is list else tuple(items)


def _map(kind: object, value: object, path: str) -> object:
    if not isinstance(value, dict):
        raise _wrong(kind, value, path)
    arguments = get_args(kind) or (str, object)
    return {
        _value(arguments[0], key, path): _value(arguments[1], item, _join(path, str(key)))
        for key, item in value.items()
    }


_PARSERS: tuple[tuple[tuple[object, ...], Callable[[object, object, str], object]], ...] = (
    ((Union, types.UnionType), _member),
    ((Literal,), _choice),
    (_SEQUENCES, _sequence),
    (_MAPS, _map),
)


def _wrong(kind: object, value: object, path: str) -> ParameterError:
    return ParameterError(path, f"expected {_word(kind)}, found {_found(value)}")


def _word(kind: object) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(repr(choice) for choice in get_args(kind))
    if get_origin(kind) in _SEQUENCES or kind in (list, tuple):
        return "a list"
    if get_origin(kind) in _MAPS or kind is dict or dataclasses.is_dataclass(kind):
        return "a map"
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_word(member) for member in get_args(kind))
    if kind in (None, type(None)):
        return "nothing"
    return _WORDS.get(kind, str(kind)) if isinstance(kind, type) else str(kind)


def _found(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "a map"
    return ascii(value)[:80]


def _join(path: str, name: str) -> str:
    if not path or not name:
        return path or name
    return f"{path}{name}" if name.startswith("[") else f"{path}.{name}"
