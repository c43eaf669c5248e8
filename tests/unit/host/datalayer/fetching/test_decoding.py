"""Decoding compressed bodies in steps."""

import gzip
import zlib
from collections.abc import Generator

import pytest
from hotbay.datalayer.fetching.decoding import STEP_BYTES, EncodingError, decoding
from hypothesis import given
from hypothesis import strategies as st

MOST = 4 << 20


def run(steps: Generator[None, None, bytes]) -> tuple[bytes, int]:
    """What it returns, and after how many turns of others."""
    turns = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, turns
        turns += 1


def reason(body: bytes, encoding: bytes = b"gzip", most: int = MOST) -> str:
    with pytest.raises(EncodingError) as caught:
        run(decoding(body, encoding, most))
    return caught.value.reason


@pytest.mark.parametrize(("size", "turns"), [(0, 0), (STEP_BYTES - 1, 0), (STEP_BYTES + 1, 1), (MOST, 16)])
def test_a_large_page_takes_as_many_steps_as_it_has_such_pieces(size: int, turns: int) -> None:
    page = b"x" * size
    decoded, taken = run(decoding(gzip.compress(page), b"gzip", MOST))
    assert decoded == page
    # Where a piece ends with the page, its end may take a step of its own.
    assert turns - 1 <= taken <= turns


def test_a_page_may_have_its_largest_size_and_no_more() -> None:
    assert len(run(decoding(gzip.compress(b"x" * MOST), b"gzip", MOST))[0]) == MOST
    assert reason(gzip.compress(b"x" * (MOST + 1))) == "too_large"
    assert reason(gzip.compress(b"x" * (64 << 20))) == "too_large"


@pytest.mark.parametrize("size", [100, STEP_BYTES, 3 * STEP_BYTES])
def test_a_cut_page_is_none(size: int) -> None:
    for level in (0, 9):
        whole = gzip.compress(b"0123456789" * (size // 10) + b"x" * (size % 10), level)
        for end in (1, 8, 9, len(whole) // 2):
            assert reason(whole[:-end]) == "truncated"


def test_members_are_one_page_and_nothing_else_follows_it() -> None:
    member = gzip.compress(b"a 1\n")
    assert run(decoding(member * 16, b"x-gzip", MOST))[0] == b"a 1\n" * 16
    assert reason(member * 17) == "encoding"
    assert reason(member + b"\0") == "truncated"
    assert reason(member + b"xx") == "encoding"
    assert reason(zlib.compress(b"a") * 2, b"deflate") == "encoding"
    assert reason(b"a 1\n") == "encoding"
    assert reason(member, b"br") == "encoding"


@given(st.lists(st.binary(max_size=50).map(lambda part: part * 9000), max_size=4), st.integers(0, 9))
def test_what_was_compressed_comes_back(parts: list[bytes], level: int) -> None:
    body = b"".join(gzip.compress(part, level) for part in parts) or gzip.compress(b"")
    assert run(decoding(body, b"gzip", MOST))[0] == b"".join(parts)
