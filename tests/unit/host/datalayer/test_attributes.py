"""AttributeMap: what it keeps, whose copies are whose, and many threads at once."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hotbay.datalayer.attributes import (
    MAX_ATTRIBUTE_BYTES,
    MAX_ATTRIBUTE_DEPTH,
    AttributeMap,
    AttributeRefusedError,
    AttributeValue,
    CheckedAttributes,
    DynamicAttribute,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

keys = st.sampled_from(["a", "b", "queue.age", "gpu/0:temp"])
scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.binary(max_size=8)
)
values: st.SearchStrategy[AttributeValue] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=8,
)


class LikeADict(RuleBasedStateMachine):
    """An AttributeMap beside a dict that is given the same."""

    @initialize()
    def start(self) -> None:
        self.map = AttributeMap()
        self.model: dict[str, AttributeValue] = {}

    @rule(key=keys, value=values)
    def put(self, key: str, value: AttributeValue) -> None:
        self.map.put(key, value)
        self.model[key] = value

    @rule(key=keys)
    def put_nothing(self, key: str) -> None:
        self.map.put(key, None)

    @rule(key=keys, value=values)
    def put_dynamic(self, key: str, value: AttributeValue) -> None:
        self.map.put(key, DynamicAttribute(lambda: value))
        self.model[key] = value

    @rule(changes=st.dictionaries(keys, st.none() | values, max_size=3))
    def update(self, changes: dict[str, AttributeValue | None]) -> None:
        self.map.update(changes)
        for key, value in changes.items():
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    @rule(key=keys, value=values)
    def refuse(self, key: str, value: AttributeValue) -> None:
        with pytest.raises(AttributeRefusedError):
            self.map.update({key: value, "b": [object()]})  # type: ignore[list-item]  # that it is refused is the point

    @rule(key=keys, value=values)
    def change_a_clone(self, key: str, value: AttributeValue) -> None:
        clone = self.map.clone()
        names = clone.keys()
        assert {name: clone.get(name) for name in names} == self.model
        clone.put(key, value)
        clone.update(dict.fromkeys({*names} - {key}))
        assert clone.keys() == (key,)

    @invariant()
    def is_like_the_dict(self) -> None:
        assert self.map.keys() == tuple(sorted(self.model))
        for key, value in self.model.items():
            found = self.map.get(key)
            assert found == value
            assert type(found) is type(value)
            assert self.map.read(key, type(value)) == value
        assert self.map.get("absent") is None


TestLikeADict = LikeADict.TestCase


def test_what_was_put_and_what_was_got_are_copies() -> None:
    attributes = AttributeMap()
    given_value: dict[str, AttributeValue] = {"clocks": [1, 2]}
    attributes.put("gpu", given_value)
    given_value["clocks"] = []
    got = attributes.get("gpu")
    assert isinstance(got, dict)
    got["clocks"].append(3)  # type: ignore[union-attr]  # it is the list
    assert attributes.get("gpu") == {"clocks": [1, 2]}


def test_checked_values_are_copies_and_go_into_any_map_as_they_are() -> None:
    given_value: dict[str, AttributeValue | None] = {"gpu": {"clocks": [1, 2]}, "zone": "x", "gone": None}
    checked = CheckedAttributes(given_value)
    given_value["gpu"]["clocks"].append(3)  # type: ignore[index,union-attr]  # it is the list
    given_value["more"] = 1
    assert checked == {"gpu": {"clocks": [1, 2]}, "zone": "x", "gone": None}
    assert (checked.given, len(checked)) == (("gpu", "zone"), 3)
    checked["gpu"]["clocks"].append(4)  # type: ignore[index,union-attr,call-overload]  # as above
    one, other = AttributeMap(), AttributeMap()
    one.put("gone", 1)
    for attributes in (one, other):
        attributes.update(checked)
        assert attributes.keys() == ("gpu", "zone")
        got = attributes.get("gpu")
        assert got == {"clocks": [1, 2]}
        got["clocks"].append(5)  # type: ignore[index,union-attr,call-overload]  # as above
    assert one.get("gpu") == other.get("gpu") == checked["gpu"] == {"clocks": [1, 2]}


def test_what_a_map_holds_is_checked_but_for_what_is_asked_for() -> None:
    attributes = AttributeMap()
    attributes.put("a", [1])
    attributes.put("b", DynamicAttribute(lambda: 2))
    checked = attributes.checked()
    attributes.put("a", [2])
    assert checked == {"a": [1]}


@pytest.mark.parametrize("values", [{"a": 1, "b c": 2}, {"a": 1, "b": object()}])
def test_values_that_may_not_be_kept_are_not_checked_values(values: dict[str, AttributeValue | None]) -> None:
    with pytest.raises(AttributeRefusedError, match="b"):
        CheckedAttributes(values)


def test_a_clone_shares_values_and_is_separate_from_then_on() -> None:
    attributes = AttributeMap()
    attributes.put("a", 1)
    clone = attributes.clone()
    clone.put("a", 2)
    attributes.put("b", 3)
    assert (attributes.get("a"), clone.get("a"), clone.get("b")) == (1, 2, None)


def test_a_dynamic_attribute_is_asked_at_each_reading_and_may_use_its_map() -> None:
    attributes = AttributeMap()
    loads: Iterator[AttributeValue | None] = iter([3, None, [1]])

    def load() -> AttributeValue | None:
        attributes.put("asked", True)
        return next(loads)

    attributes.put("load", DynamicAttribute(load))
    assert attributes.is_dynamic("load")
    assert [attributes.get("load") for _ in range(3)] == [3, None, [1]]
    assert attributes.keys() == ("asked", "load")
    assert not attributes.is_dynamic("asked")


def test_what_a_dynamic_attribute_gives_is_checked_and_copied() -> None:
    attributes, kept = AttributeMap(), [1]
    attributes.put("kept", DynamicAttribute(lambda: kept))  # type: ignore[arg-type, return-value]  # a list of int is a list of values
    got = attributes.get("kept")
    assert got == [1]
    assert got is not kept
    attributes.put("bad", DynamicAttribute(lambda: (1,)))  # type: ignore[arg-type, return-value]  # that it is refused is the point
    with pytest.raises(AttributeRefusedError, match="bad"):
        attributes.get("bad")


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [(True, int, None), (1, bool, None), (1, float, None), (1.0, float, 1.0), ("a", bytes, None), ([1], list, [1])],
)
def test_a_typed_reading_is_absent_when_the_type_is_another(value: AttributeValue, kind: type, found: object) -> None:
    attributes = AttributeMap()
    attributes.put("a", value)
    assert attributes.read("a", kind) == found
    assert attributes.read("b", kind) is None


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "k"),
        ((1,), "k"),
        ({1}, "k"),
        ([None], "k[0]"),
        ({"gpus": [0, {"clock": 1 + 2j}]}, "k.gpus[1].clock"),
        ({"a": {7: 1}}, "k.a"),
        ({"a": 1 << 64}, "k.a"),
        (-(1 << 63) - 1, "k"),
        (["\ud800"], "k[0]"),
        ({"\ud800": 1}, "k"),
    ],
)
def test_a_refused_value_names_its_path_and_changes_nothing(value: object, path: str) -> None:
    attributes = AttributeMap()
    attributes.put("k", 1)
    for change in (lambda: attributes.put("k", value), lambda: attributes.update({"j": 2, "k": value})):  # type: ignore[arg-type, dict-item]  # as above
        with pytest.raises(AttributeRefusedError) as caught:
            change()
        assert caught.value.path == path
        assert caught.value.expected
        assert caught.value.found
    assert (attributes.get("k"), attributes.keys()) == (1, ("k",))


def nested(depth: int) -> AttributeValue:
    value: AttributeValue = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("fits", "beyond"),
    [
        (nested(MAX_ATTRIBUTE_DEPTH), nested(MAX_ATTRIBUTE_DEPTH + 1)),
        (b"x" * (MAX_ATTRIBUTE_BYTES - 3), b"x" * (MAX_ATTRIBUTE_BYTES - 2)),
        ("é" * ((MAX_ATTRIBUTE_BYTES - 3) // 2), "é" * (MAX_ATTRIBUTE_BYTES // 2)),
        ([1] * (MAX_ATTRIBUTE_BYTES - 3), [1] * (MAX_ATTRIBUTE_BYTES - 2)),
        ([300] * ((MAX_ATTRIBUTE_BYTES - 3) // 3), [300] * (MAX_ATTRIBUTE_BYTES // 3)),
        ({"x" * (MAX_ATTRIBUTE_BYTES - 5): 1}, {"x" * (MAX_ATTRIBUTE_BYTES - 4): 1}),
    ],
    ids=["levels", "bytes", "text", "items", "large items", "names"],
)
def test_values_are_bounded_on_both_sides(fits: AttributeValue, beyond: AttributeValue) -> None:
    attributes = AttributeMap()
    attributes.put("k", fits)
    with pytest.raises(AttributeRefusedError, match="at most"):
        attributes.put("k", beyond)
    assert attributes.get("k") == fits


@pytest.mark.parametrize(
    ("key", "is_fit"),
    [("a", True), ("A_z.0:/-", True), ("a" * 128, True), ("", False), ("a" * 129, False), ("a b", False), ("é", False)],
)
def test_keys_are_bounded(key: str, is_fit: bool) -> None:
    attributes = AttributeMap()
    for change in (lambda: attributes.put(key, 1), lambda: attributes.update({key: 1})):
        if is_fit:
            change()
        else:
            with pytest.raises(AttributeRefusedError, match="1 to 128 characters"):
                change()
    assert attributes.keys() == ((key,) if is_fit else ())


def test_changes_are_told_once_until_they_are_settled() -> None:
    told: list[int] = []
    attributes = AttributeMap(lambda: told.append(1))
    attributes.put("a", None)
    assert told == []
    attributes.put("a", 1)
    attributes.update({"a": None})
    assert told == [1]
    attributes.settle()
    attributes.put("a", 1)
    assert told == [1, 1]
    attributes.clone().put("b", 1)
    assert told == [1, 1]


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads change as often as they can, so that what is not atomic is seen not to be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_threads(*bodies: Callable[[], None]) -> None:
    """Run all at the same time, and raise what one of them raises."""
    barrier = threading.Barrier(len(bodies))

    def run(body: Callable[[], None]) -> None:
        barrier.wait(10)
        body()

    with ThreadPoolExecutor(len(bodies)) as pool:
        for done in [pool.submit(run, body) for body in bodies]:
            done.result(15)


@pytest.mark.usefixtures("switching")
def test_threads_see_values_that_were_put_together_together() -> None:
    """Four writers put two keys at once or remove them, four readers clone, list and read: never one without the other."""
    attributes = AttributeMap()
    names = [f"k{n}" for n in range(8)]

    def write(offset: int) -> Callable[[], None]:
        def body() -> None:
            for turn in range(300):
                present = (turn + offset) % 3
                value: AttributeValue | None = [turn * 4 + offset, {"x": turn}] if present else None
                attributes.update(dict.fromkeys(names, value))

        return body

    def read() -> None:
        for _ in range(600):
            clone = attributes.clone()
            found = [clone.get(name) for name in names]
            assert all(value == found[0] for value in found), found
            assert len(attributes.keys()) in (0, len(names))
            one = attributes.get("k3")
            assert one is None or (isinstance(one, list) and len(one) == 2)

    run_threads(*[write(n) for n in range(4)], *[read] * 4)


@pytest.mark.usefixtures("switching")
def test_threads_lose_no_news() -> None:
    """Who settles a map before reading it sees, once all writers have ended, the last value of each."""
    news: list[int] = []
    attributes = AttributeMap(lambda: news.append(1))
    seen: dict[str, AttributeValue | None] = {}
    written: list[str] = []

    def write(key: str) -> Callable[[], None]:
        def body() -> None:
            for value in range(2000):
                attributes.put(key, value)
            written.append(key)

        return body

    def follow() -> None:
        while news or len(written) < 3:
            if news:
                news.pop()
                attributes.settle()
                names = attributes.keys()
                seen.update((name, attributes.get(name)) for name in names)

    run_threads(write("a"), write("b"), write("c"), follow)
    assert seen == {"a": 1999, "b": 1999, "c": 1999}


@given(values)
def test_a_kept_value_is_equal_and_of_the_same_types_all_through(value: AttributeValue) -> None:
    attributes = AttributeMap()
    attributes.put("k", value)
    assert repr(attributes.get("k")) == repr(value)
