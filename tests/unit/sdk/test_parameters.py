"""Parameter dataclasses are filled strictly: every refusal names the path of the bad field."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from hotbay_sdk import ParameterError
from hotbay_sdk._parameters import parse_dataclass


@dataclass(frozen=True)
class Rule:
    name: str
    limit: int = 3


@dataclass(frozen=True)
class Inner:
    queue: float = 0.5


@dataclass(frozen=True)
class Params:
    weight: float = 1.0
    count: int = 1
    enabled: bool = False
    mode: Literal["least", "most"] = "least"
    label: str | None = None
    either: int | str = 0
    inner: Inner = field(default_factory=Inner)
    maybe: Inner | None = None
    rules: list[Rule] = field(default_factory=list)
    names: tuple[str, ...] = ()
    pair: tuple[int, str] = (0, "")
    table: Mapping[str, int] = field(default_factory=dict)
    noted: Annotated[int, "unit"] = 0
    raw: Any = None


def test_defaults_stand_for_what_is_left_out():
    assert parse_dataclass(Params, {}) == Params()


def test_nested_values_are_built():
    given = {
        "weight": 2,
        "count": 5,
        "enabled": True,
        "mode": "most",
        "label": "x",
        "either": "text",
        "inner": {"queue": 1},
        "maybe": {"queue": 2.5},
        "rules": [{"name": "a"}, {"name": "b", "limit": 9}],
        "names": ["p", "q"],
        "pair": [1, "one"],
        "table": {"a": 1},
        "noted": 7,
        "raw": [1, {"x": None}],
    }
    assert parse_dataclass(Params, given) == Params(
        weight=2.0,
        count=5,
        enabled=True,
        mode="most",
        label="x",
        either="text",
        inner=Inner(1.0),
        maybe=Inner(2.5),
        rules=[Rule("a"), Rule("b", 9)],
        names=("p", "q"),
        pair=(1, "one"),
        table={"a": 1},
        noted=7,
        raw=[1, {"x": None}],
    )


def test_float_takes_a_whole_number_as_a_float():
    parsed = parse_dataclass(Params, {"weight": 3})
    assert isinstance(parsed, Params)
    assert type(parsed.weight) is float


@pytest.mark.parametrize(
    ("given", "path", "message"),
    [
        ({"wieght": 1}, "wieght", "unknown field, did you mean weight?"),
        ({"zzzz": 1}, "zzzz", "unknown field; known are weight, count"),
        ({"inner": {"qeue": 1}}, "inner.qeue", "unknown field, did you mean queue?"),
        ({"rules": [{"name": "a"}, {"limit": 1}]}, "rules[1].name", "missing, expected text"),
        ({"rules": [{"name": "a", "limit": "3"}]}, "rules[0].limit", "expected a whole number, found '3'"),
        ({"rules": {}}, "rules", "expected a list, found a map"),
        ({"count": True}, "count", "expected a whole number, found true"),
        ({"count": 1.0}, "count", "expected a whole number, found 1.0"),
        ({"count": None}, "count", "expected a whole number, found nothing"),
        ({"weight": "1"}, "weight", "expected a number, found '1'"),
        ({"weight": False}, "weight", "expected a number, found false"),
        ({"weight": float("nan")}, "weight", "expected a number, found nan"),
        ({"weight": float("inf")}, "weight", "expected a number, found inf"),
        ({"enabled": 1}, "enabled", "expected true or false, found 1"),
        ({"mode": "best"}, "mode", "expected one of 'least', 'most', found 'best'"),
        ({"label": 3}, "label", "expected text, found 3"),
        ({"either": 1.5}, "either", "expected a whole number or text, found 1.5"),
        ({"maybe": 3}, "maybe", "expected a map, found 3"),
        ({"names": "ab"}, "names", "expected a list, found 'ab'"),
        ({"names": ["a", 1]}, "names[1]", "expected text, found 1"),
        ({"pair": [1]}, "pair", "expected 2 items, found 1"),
        ({"table": {"a": "x"}}, "table.a", "expected a whole number, found 'x'"),
    ],
)
def test_refusal_names_path_expected_and_found(given, path, message):
    with pytest.raises(ParameterError) as caught:
        parse_dataclass(Params, given)
    assert caught.value.path == path
    assert caught.value.message.startswith(message)


def test_value_error_of_the_dataclass_itself_is_a_refusal():
    @dataclass(frozen=True)
    class Positive:
        count: int

        def __post_init__(self):
            if self.count <= 0:
                raise ValueError("count must be above 0")

    @dataclass(frozen=True)
    class Outer:
        inner: Positive

    Outer.__annotations__["inner"] = Positive
    with pytest.raises(ParameterError) as caught:
        parse_dataclass(Outer, {"inner": {"count": 0}})
    assert (caught.value.path, caught.value.message) == ("inner", "count must be above 0")


def test_parameter_error_of_the_dataclass_itself_gets_the_whole_path():
    @dataclass(frozen=True)
    class Picky:
        count: int

        def __post_init__(self):
            raise ParameterError("count", "never")

    @dataclass(frozen=True)
    class Outer:
        inner: Picky

    with pytest.raises(ParameterError) as caught:
        parse_dataclass(Outer, {"inner": {"count": 0}})
    assert caught.value.path == "inner.count"
