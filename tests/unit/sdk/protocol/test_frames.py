"""Frames: cutting a stream that may be split anyhow and lie anywhere."""

import itertools

import pytest
from hotbay_sdk.protocol.frames import (
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MAX_FRAME_BYTES,
    Frame,
    FrameReader,
    Oversized,
    Violation,
    encode_frame,
)
from hypothesis import given
from hypothesis import strategies as st

LIMIT = 50


def reader() -> FrameReader:
    return FrameReader(lambda _type, _stream: LIMIT)


def feed_all(pieces: list[bytes]) -> list[Frame | Oversized | Violation]:
    cutter = reader()
    return [item for piece in pieces for item in cutter.feed(piece)]


def split(stream: bytes, offsets: list[int]) -> list[bytes]:
    ends = [0, *sorted(offset % (len(stream) + 1) for offset in offsets), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(ends)]


THREE_FRAMES = encode_frame(6, 1, b"first") + encode_frame(7, 1, b"") + encode_frame(8, 3, b"x" * LIMIT)


def test_r04_three_frames_are_the_same_for_each_split_and_byte_by_byte() -> None:
    whole = feed_all([THREE_FRAMES])
    assert [(item.type, item.stream) for item in whole if isinstance(item, Frame)] == [(6, 1), (7, 1), (8, 3)]
    for offset in range(len(THREE_FRAMES) + 1):
        assert feed_all([THREE_FRAMES[:offset], THREE_FRAMES[offset:]]) == whole
    assert feed_all([bytes([byte]) for byte in THREE_FRAMES]) == whole


frames = st.builds(
    encode_frame,
    st.integers(0, 255),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=LIMIT + 20),
    st.integers(0, 255),
)
streams = st.lists(st.one_of(frames, st.binary(max_size=30)), max_size=6).map(b"".join)


@given(streams, st.lists(st.integers(0, 2**16), max_size=8))
def test_any_split_of_any_stream_gives_the_same_items(stream: bytes, offsets: list[int]) -> None:
    assert feed_all(split(stream, offsets)) == feed_all([stream])


@given(frames, st.integers(-1, 1))
def test_the_fast_path_agrees_with_the_slow_one(frame: bytes, change: int) -> None:
    data = frame[:change] if change < 0 else frame + b"\xf5" * change
    fast, slow = reader().whole(data), reader().feed(data)
    if fast is not None:
        assert [Frame(*fast)] == slow
    elif change == 0:
        assert not any(isinstance(item, Frame) for item in slow)


def test_the_fast_path_waits_for_the_end_of_a_frame_that_has_begun() -> None:
    cutter = reader()
    outer = encode_frame(6, 1, encode_frame(7, 1, b"inner"))
    assert cutter.feed(outer[:HEADER_BYTES]) == []
    assert cutter.whole(outer[HEADER_BYTES:]) is None
    assert cutter.feed(outer[HEADER_BYTES:]) == [Frame(6, 0, 1, encode_frame(7, 1, b"inner"))]


def test_the_fast_path_takes_nothing_of_a_body_that_is_being_skipped() -> None:
    cutter = reader()
    body = encode_frame(7, 1, b"") * 10
    cutter.feed(encode_frame(6, 1, body)[: HEADER_BYTES + HEADER_BYTES])
    assert cutter.whole(encode_frame(7, 1, b"")) is None


def test_r01_a_length_of_4_gib_is_refused_at_its_header_with_nothing_kept() -> None:
    cutter = reader()
    (violation,) = cutter.feed(HEADER.pack(MAGIC, 7, 0, 1, 1, 0xFFFFFFFF) + b"x" * 10)
    assert isinstance(violation, Violation)
    assert violation.code == "FRAME_TOO_LARGE"
    assert not cutter.mid_frame
    assert cutter.feed(b"more") == []


@pytest.mark.parametrize(("length", "refused"), [(MAX_FRAME_BYTES, False), (MAX_FRAME_BYTES + 1, True)])
def test_the_hard_cap_holds_on_both_sides(length: int, refused: bool) -> None:
    cutter = FrameReader(lambda _type, _stream: MAX_FRAME_BYTES * 2)
    items = cutter.feed(HEADER.pack(MAGIC, 7, 0, 1, 1, length))
    assert [type(item) for item in items] == ([Violation] if refused else [])
    assert cutter.mid_frame is not refused


@pytest.mark.parametrize(
    "noise",
    [b"hello, world\n", b"\xdc", b"\xc1", b"\xc3\xa9"],
    ids=["ascii13", "0xdc", "0xc1", "utf8"],
)
def test_r06_noise_between_frames_is_found_at_its_first_byte(noise: bytes) -> None:
    good = encode_frame(7, 1, b"body")
    cutter = reader()
    assert cutter.feed(good) == [Frame(7, 0, 1, b"body")]
    (violation,) = cutter.feed(noise[:1])
    assert isinstance(violation, Violation)
    assert violation.code == "PROTOCOL_VIOLATION"
    assert f"0x{noise[0]:02x}" in violation.message
    assert not cutter.mid_frame
    together = feed_all([good + noise + good])
    assert together == [Frame(7, 0, 1, b"body"), violation]


def test_a_frame_of_another_version_is_a_violation() -> None:
    (violation,) = feed_all([HEADER.pack(MAGIC, 7, 0, 2, 1, 0)])
    assert isinstance(violation, Violation)
    assert "version 2" in violation.message


@pytest.mark.parametrize(("length", "kept"), [(LIMIT, True), (LIMIT + 1, False)])
def test_the_limit_of_a_method_holds_on_both_sides(length: int, kept: bool) -> None:
    body = b"z" * length
    items = feed_all([encode_frame(7, 9, body, 3) + encode_frame(6, 1, b"next")])
    assert items == [Frame(7, 3, 9, body) if kept else Oversized(7, 3, 9, length, LIMIT), Frame(6, 0, 1, b"next")]


def test_an_oversized_body_is_told_at_its_header_and_never_kept() -> None:
    cutter = reader()
    assert cutter.feed(HEADER.pack(MAGIC, 7, 0, 1, 9, 1000) + b"y" * 500) == [Oversized(7, 0, 9, 1000, LIMIT)]
    assert cutter.mid_frame
    assert cutter._buffer == b""
    assert cutter.feed(b"y" * 500) == []
    assert not cutter.mid_frame


@given(streams, st.sampled_from([bytes, bytearray, memoryview]))
def test_every_kind_of_buffer_reads_the_same(stream: bytes, kind: type[bytes]) -> None:
    assert feed_all([kind(stream)]) == feed_all([stream])
    assert reader().whole(kind(stream)) == reader().whole(stream)
