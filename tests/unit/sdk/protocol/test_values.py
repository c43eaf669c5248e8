"""Values: what may cross, what may not, and what a hostile body costs."""

import contextlib
import datetime
import math
import tracemalloc

import msgpack
import pytest
from hotbay_sdk.protocol import CallMeta, Connection, Role, ValueRefusedError, check_value
from hotbay_sdk.protocol.frames import MAX_FRAME_BYTES
from hotbay_sdk.protocol.messages import CONTROL_FRAME_BYTES
from hotbay_sdk.protocol.values import KEPT_BUFFER_BYTES, MAX_DEPTH, Encoder, unpack, unpack_checked
from hypothesis import given
from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | texts | st.binary(max_size=40)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5), max_leaves=20
)


def nested(levels: int) -> object:
    value: object = None
    for _ in range(levels):
        value = [value]
    return value


def same(left: object, right: object) -> bool:
    """Equality of structure and type, under which NaN is itself and 1, 1.0 and True are three."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(map(same, left.values(), right.values()))
    return left == right


@given(values)
def test_values_round_trip(value: object) -> None:
    check_value(value)
    assert same(unpack_checked(Encoder().pack_checked(value)), value)


@given(st.lists(values, max_size=5))
def test_an_encoder_keeps_nothing_of_earlier_values(many: list[object]) -> None:
    encoder = Encoder()
    for value in many:
        assert encoder.pack(value) == msgpack.packb(value)


def test_an_encoder_keeps_nothing_of_a_value_it_refused() -> None:
    encoder = Encoder()
    with pytest.raises(ValueRefusedError):
        encoder.pack([b"x" * 100, {1, 2}])
    assert encoder.pack([1]) == b"\x91\x01"


class Text(str):
    """A str by inheritance only."""

    __slots__ = ()


REFUSED = {
    "int keys": ({1: "a"}, "a map key of type int"),
    "bytes keys": ({b"k": "a"}, "a map key of type bytes"),
    "set": ({1, 2}, "a value of type set"),
    "datetime": (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), "a value of type datetime"),
    "2**64": (2**64, "an integer outside int64 and uint64"),
    "-2**63 - 1": (-(2**63) - 1, "an integer outside int64 and uint64"),
    "surrogate": ("\ud800", "lone surrogate"),
    "surrogate key": ({"\ud800": 1}, "lone surrogate"),
    "bytearray": (bytearray(b"x"), "a value of type bytearray"),
    "memoryview": (memoryview(b"x"), "a value of type memoryview"),
    "complex": (1j, "a value of type complex"),
    "object": (object(), "a value of type object"),
    "subclass of str": (Text("x"), "a value of type Text"),
    "extension": (msgpack.ExtType(1, b""), "a value of type ExtType"),
}


@pytest.mark.parametrize(("value", "found"), REFUSED.values(), ids=REFUSED.keys())
def test_r19_a_result_that_may_not_cross_is_refused_before_a_byte_is_written(value: object, found: str) -> None:
    host, plugin = Connection(Role.HOST), Connection(Role.PLUGIN)
    stream, call = host.start_call(3, [], deadline_us=1)
    plugin.feed(call)
    for result, path in ((value, ""), ([None, {"rows": [value]}], "[1].rows[0]")):
        with pytest.raises(ValueRefusedError) as caught:
            plugin.send_reply(stream, result)
        assert found in caught.value.found
        assert caught.value.path == path
    assert plugin.serving == 1
    assert host.feed(plugin.send_reply(stream, "still answerable"))


def test_a_list_that_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(ValueRefusedError, match="nested deeper"):
        check_value(loop)
    with pytest.raises(ValueRefusedError):
        Encoder().pack(loop)


def test_integers_at_both_ends_of_their_range_cross() -> None:
    check_value([-(2**63), 2**64 - 1])


def test_depth_is_limited_on_both_sides_of_the_limit() -> None:
    check_value(nested(MAX_DEPTH))
    assert unpack_checked(b"\x91" * MAX_DEPTH + b"\xc0") == nested(MAX_DEPTH)
    with pytest.raises(ValueRefusedError, match="nested deeper"):
        check_value(nested(MAX_DEPTH + 1))
    with pytest.raises(ValueRefusedError, match="nested deeper"):
        unpack_checked(b"\x91" * (MAX_DEPTH + 1) + b"\xc0")


HOSTILE = {
    "nothing": b"",
    "never used byte": b"\xc1",
    "two values": b"\xc0\xc0",
    "half a value": b"\x92\xc0",
    "invalid UTF-8": b"\xa1\xff",
    "surrogate in UTF-8": b"\xa3\xed\xa0\x80",
    "int key": b"\x81\x01\x02",
    "array key": b"\x81\x90\x01",
    "extension": b"\xd4\x05\x00",
    "empty extension": b"\xc7\x00\x05",
    "timestamp": b"\xd6\xff\x00\x00\x00\x00",
    "empty timestamp": b"\xc7\x00\xff",
    "array of 4 Gi": b"\xdd\xff\xff\xff\xff",
    "map of 4 Gi": b"\xdf\xff\xff\xff\xff",
    "text of 4 Gi": b"\xdb\xff\xff\xff\xff",
    "bytes of 4 Gi": b"\xc6\xff\xff\xff\xff",
    "100,000 levels": b"\x91" * 100_000 + b"\xc0",
    "100,000 levels of maps": b"\x81\xa0" * 100_000 + b"\xc0",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_body_is_refused_by_either_role(body: bytes) -> None:
    for decode in (unpack, unpack_checked):
        with pytest.raises(ValueRefusedError):
            decode(body)


def test_a_bytes_key_is_refused_where_the_peer_is_not_trusted() -> None:
    with pytest.raises(ValueRefusedError, match="map key of type bytes"):
        unpack_checked(b"\x81\xc4\x01a\x01")


@pytest.mark.parametrize("size", [1023, 1024, 16 * 1024, CONTROL_FRAME_BYTES])
def test_array_headers_that_lie_about_their_counts_allocate_next_to_nothing(size: int) -> None:
    header = b"\xdd" + size.to_bytes(4, "big")
    bomb = (header * 900)[: size - size % 5].ljust(size, b"\x00")
    tracemalloc.start()
    try:
        with pytest.raises(ValueRefusedError):
            unpack_checked(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


def test_a_value_that_no_frame_can_carry_is_refused_by_its_sender() -> None:
    encoder = Encoder()
    assert len(encoder.pack(b"x" * (MAX_FRAME_BYTES - 5))) == MAX_FRAME_BYTES
    with pytest.raises(ValueRefusedError, match="a frame carries at most"):
        encoder.pack(b"x" * (MAX_FRAME_BYTES - 4))


def test_an_encoder_gives_back_the_memory_of_a_long_message() -> None:
    tracemalloc.start()
    try:
        encoder = Encoder()
        encoder.pack(b"x" * (4 * KEPT_BUFFER_BYTES))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < KEPT_BUFFER_BYTES


@given(st.binary(max_size=60))
def test_no_body_raises_anything_but_a_refusal(body: bytes) -> None:
    for decode in (unpack, unpack_checked):
        with contextlib.suppress(ValueRefusedError):
            decode(body)


def test_a_meta_is_as_long_as_the_wire_says() -> None:
    assert CallMeta._fields == ("method", "deadline_us", "trace", "tenant", "attempt", "parent", "epoch")
