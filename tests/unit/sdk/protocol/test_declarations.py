"""Records and enumerations behave at run time like the standard ones that a type checker sees."""

import copy
import enum
import pickle
from typing import NamedTuple

import pytest
from hotbay_sdk.protocol import declarations
from hotbay_sdk.protocol.frames import Frame, FrameType
from hotbay_sdk.protocol.messages import CallMeta, ErrorCode


class Standard(NamedTuple):
    first: int
    second: str = "b"
    third: tuple[int, ...] = ()


class Record(declarations.NamedTuple):
    first: int
    second: str = "b"
    third: tuple[int, ...] = ()


class StandardNumber(enum.IntEnum):
    ONE = 1
    TWO = 2


class Number(declarations.IntEnum):
    ONE = 1
    TWO = 2


class StandardText(enum.StrEnum):
    A = "a"
    B = "b"


class Text(declarations.StrEnum):
    A = "a"
    B = "b"


ENUMERATIONS = [(Number, StandardNumber), (Text, StandardText)]
COPIES = [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]


def test_record_has_the_shape_of_a_named_tuple():
    assert Record._fields == Standard._fields
    assert Record._field_defaults == Standard._field_defaults
    assert Record.__match_args__ == Standard.__match_args__
    assert not hasattr(Record(1), "__dict__")


@pytest.mark.parametrize("given", [{"first": 1}, {"first": 1, "third": (2,)}, {"third": (), "second": "c", "first": 0}])
def test_record_is_made_by_name_as_a_named_tuple_is(given: dict[str, object]):
    made, expected = Record(**given), Standard(**given)

    assert (made.first, made.second, made.third) == (expected.first, expected.second, expected.third)
    assert made == expected
    assert hash(made) == hash(expected)
    assert repr(made) == repr(expected).replace("Standard", "Record")


@pytest.mark.parametrize(
    ("positional", "named"), [((), {}), ((1, "b", (), 4), {}), ((1,), {"first": 1}), ((1,), {"x": 1})]
)
def test_record_refuses_other_arguments_than_its_fields(positional: tuple[object, ...], named: dict[str, object]):
    with pytest.raises(TypeError) as expected:
        Standard(*positional, **named)
    with pytest.raises(TypeError) as found:
        Record(*positional, **named)

    # Which function of its own a named tuple names, depends on the version of Python.
    assert str(found.value).partition("()")[2] == str(expected.value).partition("()")[2]


def test_record_is_immutable():
    with pytest.raises(AttributeError):
        Record(1).first = 2


def test_record_is_replaced_field_by_field():
    assert Record(1)._replace(second="c") == Record(1, "c")
    with pytest.raises(TypeError):
        Record(1)._replace(fourth=1)


def test_record_is_matched_by_position():
    match Record(1, "c"):
        case Record(first, second):
            assert (first, second) == (1, "c")
        case _:
            pytest.fail("no match")


@pytest.mark.parametrize("copied", COPIES)
def test_copy_of_a_record_is_equal(copied):
    meta = CallMeta(3, 50_000, None, None, 0, 0, 7)

    assert copied(meta) == meta
    assert type(copied(meta)) is CallMeta


def test_records_of_many_kinds_do_not_share_a_constructor():
    assert Frame(type=6, flags=0, stream=1, body=b"") == (6, 0, 1, b"")
    with pytest.raises(TypeError, match=r"Frame\.__new__\(\) got an unexpected keyword argument 'first'"):
        Frame(first=1)


@pytest.mark.parametrize(("kind", "standard"), ENUMERATIONS)
def test_members_are_found_as_in_the_standard_enumeration(kind, standard):
    assert [m.name for m in kind] == [m.name for m in standard]
    assert [m.value for m in kind] == [m.value for m in standard]
    assert list(kind.__members__) == list(standard.__members__)
    assert len(kind) == len(standard)
    for member in kind:
        assert kind(member.value) is kind(member) is kind[member.name] is getattr(kind, member.name) is member
        assert member in kind


@pytest.mark.parametrize(("kind", "standard"), ENUMERATIONS)
def test_members_print_as_those_of_the_standard_enumeration(kind, standard):
    for member, expected in zip(kind, standard, strict=True):
        assert str(member) == str(expected)
        assert f"{member}" == f"{expected}"
        assert f"{member:>4}" == f"{expected:>4}"
        assert repr(member) == repr(expected).replace("Standard", "")


@pytest.mark.parametrize(("kind", "standard"), ENUMERATIONS)
def test_members_are_equal_to_their_values(kind, standard):
    for member, expected in zip(kind, standard, strict=True):
        assert member == expected.value
        assert hash(member) == hash(expected.value)
        assert {expected.value: 1}[member] == 1


@pytest.mark.parametrize(("kind", "standard"), ENUMERATIONS)
@pytest.mark.parametrize("value", [0, "x", None, [], b"a"])
def test_unknown_value_is_refused_as_by_the_standard_enumeration(kind, standard, value: object):
    with pytest.raises(ValueError, match="is not a valid") as expected:
        standard(value)
    with pytest.raises(ValueError, match="is not a valid") as found:
        kind(value)

    assert str(found.value) == str(expected.value).replace("Standard", "")


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("member", [FrameType.REQ, ErrorCode.CRASHED])
def test_copy_of_a_member_is_the_member(copied, member):
    assert copied(member) is member
