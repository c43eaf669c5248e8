"""What this package's records and enumerations derive from: exact for a type checker, cheap at run time.

A type checker sees `typing.NamedTuple`, `enum.IntEnum` and `enum.StrEnum`. At run time the names stand for
the classes below, which behave alike, because every plugin process imports this package. From start to READY
a process executes 79 million instructions; with the standard ones, and what they import, it is 136. A bare
interpreter starts and ends in 28. Records are made and read at the speed of `collections.namedtuple`.

A module that declares records defers its annotations (`from __future__ import annotations`); a record has at
most fourteen fields. Left out, because nothing here uses it: `_make` and `_asdict` of records; aliases, `auto`
and methods of enumerations, and the guard of members against assignment, which the type checker refuses.
"""

from __future__ import annotations

from _collections import _tuplegetter  # type: ignore[import-not-found]  # not in the stubs; how named tuples read fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from enum import IntEnum, StrEnum
    from types import FunctionType
    from typing import NamedTuple, Self
else:
    FunctionType = type(lambda: None)  # as `types` itself finds it

__all__ = ["IntEnum", "NamedTuple", "StrEnum"]


class _RecordType(type):
    """Makes the annotated names of a class body the fields of a tuple."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, object]) -> _RecordType:
        annotations = body.get("__annotations__", {})
        assert isinstance(annotations, dict)
        fields = tuple(field for field in annotations if not field.startswith("_"))
        body["__slots__"] = ()
        if fields:
            defaults = {field: body.pop(field) for field in fields if field in body}
            body |= {field: _tuplegetter(index, None) for index, field in enumerate(fields)}
            body |= {"_fields": fields, "__match_args__": fields, "_field_defaults": defaults}
            body["__new__"] = _constructor(name, fields, tuple(defaults.values()))
        return super().__new__(cls, name, bases, body)


_new = tuple.__new__
_CONSTRUCTORS = (
    lambda cls: _new(cls, ()),
    lambda cls, a: _new(cls, (a,)),
    lambda cls, a, b: _new(cls, (a, b)),
    lambda cls, a, b, c: _new(cls, (a, b, c)),
    lambda cls, a, b, c, d: _new(cls, (a, b, c, d)),
    lambda cls, a, b, c, d, e: _new(cls, (a, b, c, d, e)),
    lambda cls, a, b, c, d, e, f: _new(cls, (a, b, c, d, e, f)),
    lambda cls, a, b, c, d, e, f, g: _new(cls, (a, b, c, d, e, f, g)),
    lambda cls, a, b, c, d, e, f, g, h: _new(cls, (a, b, c, d, e, f, g, h)),
    lambda cls, a, b, c, d, e, f, g, h, i: _new(cls, (a, b, c, d, e, f, g, h, i)),
    lambda cls, a, b, c, d, e, f, g, h, i, j: _new(cls, (a, b, c, d, e, f, g, h, i, j)),
    lambda cls, a, b, c, d, e, f, g, h, i, j, k: _new(cls, (a, b, c, d, e, f, g, h, i, j, k)),
    lambda cls, a, b, c, d, e, f, g, h, i, j, k, l: _new(cls, (a, b, c, d, e, f, g, h, i, j, k, l)),  # noqa: E741  # a letter like the others
    lambda cls, a, b, c, d, e, f, g, h, i, j, k, l, m: _new(cls, (a, b, c, d, e, f, g, h, i, j, k, l, m)),  # noqa: E741  # as above
    lambda cls, a, b, c, d, e, f, g, h, i, j, k, l, m, n: _new(cls, (a, b, c, d, e, f, g, h, i, j, k, l, m, n)),  # noqa: E741  # as above
)
"""By the number of fields. One function for any number would make every event slower to create."""


def _constructor(name: str, fields: tuple[str, ...], defaults: tuple[object, ...]) -> object:
    """A copy with the fields as its parameters: `collections.namedtuple` compiles one, at twenty times the price."""
    template = _CONSTRUCTORS[len(fields)]
    code = template.__code__.replace(co_varnames=("cls", *fields), co_name="__new__", co_qualname=f"{name}.__new__")
    return FunctionType(code, globals(), "__new__", defaults)


class _Record(tuple[object, ...], metaclass=_RecordType):
    """`NamedTuple` at run time."""

    _fields: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shown = (f"{field}={value!r}" for field, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({', '.join(shown)})"

    def __getnewargs__(self) -> tuple[object, ...]:
        return tuple(self)

    def _replace(self, **changes: object) -> Self:
        return type(self)(**dict(zip(self._fields, self, strict=True)) | changes)


class _EnumerationType(type):
    """Makes the public names of a class body members, in their order."""

    __members__: Mapping[str, _Member]

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, object]) -> _EnumerationType:
        values = {key: body.pop(key) for key in tuple(body) if not key.startswith("_")}
        made = super().__new__(cls, name, bases, body)
        members = {key: _member(made, key, value) for key, value in values.items()}
        for key, member in members.items():
            setattr(made, key, member)
        made.__members__ = members
        return made

    def __call__(cls, value: object) -> _Member:
        for member in cls:
            if member.value == value:
                return member
        raise ValueError(f"{value!r} is not a valid {cls.__name__}")

    def __getitem__(cls, name: str) -> _Member:
        return cls.__members__[name]

    def __iter__(cls) -> Iterator[_Member]:
        return iter(cls.__members__.values())

    def __len__(cls) -> int:
        return len(cls.__members__)


class _Member:
    """What a member is beside a number or a text."""

    name: str
    value: object

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {self.value!r}>"

    def __reduce__(self) -> tuple[type, tuple[object]]:
        """A copy of a member is the member."""
        return type(self), (self.value,)


def _member(kind: type, name: str, value: object) -> _Member:
    made: _Member = kind.__new__(kind, value)  # type: ignore[assignment]  # a checker takes it for that of `type`
    made.name, made.value = name, value
    return made


class _IntMember(_Member, int, metaclass=_EnumerationType):
    """`IntEnum` at run time."""

    __str__ = int.__repr__


class _StrMember(_Member, str, metaclass=_EnumerationType):
    """`StrEnum` at run time."""


if not TYPE_CHECKING:
    NamedTuple, IntEnum, StrEnum = _Record, _IntMember, _StrMember
