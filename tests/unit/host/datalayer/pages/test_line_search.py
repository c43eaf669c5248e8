"""Finding wanted lines where they stood: the same as a search of the whole page, or at the latest some pages later."""

import re

import pytest
from hotbay.datalayer.pages import line_search
from hotbay.datalayer.pages.line_search import FULL_EVERY, MAX_LINES, LineMemory, LineSearch
from hotbay.datalayer.pages.text import PageText
from hypothesis import given
from hypothesis import strategies as st

WANTED = ("a", "b:c", "d")


def text(body: bytes) -> PageText:
    """A page in the middle of a buffer that has wanted lines before and behind it."""
    before = b"a 666\n"
    return PageText(bytearray(before + body + b"\na 667\n"), len(before), len(before) + len(body))


def filler(lines: int, tag: str = "x") -> bytes:
    return b"".join(b"other_%s_%d 1\n" % (tag.encode(), number) for number in range(lines))


def names(found: list[tuple[bytes, bytes]]) -> list[str]:
    return [f"{name.decode()}{rest.decode()}" for name, rest in found]


def test_only_lines_of_whole_names_in_the_page_are_found() -> None:
    body = b'a 1\nab 2\n# a 3\n\tb:c{x="y"} 4\nb 5\na\t6'
    assert names(LineSearch(WANTED).find(text(body))) == ["a 1", 'b:c{x="y"} 4', "a\t6"]
    assert LineSearch([]).find(text(body), LineMemory()) == []


def test_lines_that_moved_a_little_are_found_where_they_stood() -> None:
    search, memory = LineSearch(WANTED), LineMemory()
    first = filler(900, "p") + b"a 1\na 2\n" + filler(900, "q") + b"d 3\n"
    assert names(search.find(text(first), memory)) == ["a 1", "a 2", "d 3"]
    places = memory.places
    assert len(places) == 2
    moved = filler(900, "pp") + b"a 1\na 2\na 2.5\n" + filler(900, "q") + b"d 4\n"
    assert names(search.find(text(moved), memory)) == ["a 1", "a 2", "a 2.5", "d 4"]
    assert memory.places is places, "the whole page was not searched"


def test_lines_that_moved_far_are_found_by_a_search_of_all() -> None:
    search, memory = LineSearch(WANTED), LineMemory()
    search.find(text(filler(300) + b"a 1\n" + filler(300)), memory)
    assert names(search.find(text(filler(900) + b"a 2\n"), memory)) == ["a 2"]
    assert names(search.find(text(b"a 3\n" + filler(9)), memory)) == ["a 3"]


@pytest.mark.parametrize("more", [1, 200, MAX_LINES])
def test_a_family_that_grows_beyond_its_place_is_found_whole(more: int) -> None:
    search, memory = LineSearch(WANTED), LineMemory()
    search.find(text(filler(300) + b"a 1\n" + filler(300)), memory)
    body = filler(300) + b"".join(b"a %d\n" % number for number in range(more)) + filler(300)
    assert len(search.find(text(body), memory)) == more


def test_a_family_that_appears_elsewhere_is_found_at_the_latest_with_the_next_search_of_all() -> None:
    search, memory = LineSearch(WANTED), LineMemory()
    body = filler(300) + b"a 1\n" + filler(300)
    search.find(text(body), memory)
    for _ in range(FULL_EVERY - 1):
        found = names(search.find(text(body + b"d 2\n"), memory))
    assert found == ["a 1", "d 2"]
    assert names(search.find(text(body + b"d 3\n"), memory)) == ["a 1", "d 3"]


def test_m08_a_family_in_two_places_is_searched_for_everywhere() -> None:
    search, memory = LineSearch(WANTED), LineMemory()
    body = b"a 1\n" + filler(300) + b"a 2\n"
    assert names(search.find(text(body), memory)) == ["a 1", "a 2"]
    assert memory.places == ()
    assert names(search.find(text(body.replace(b"a 2", b"a 3")), memory)) == ["a 1", "a 3"]


def test_a_family_that_goes_is_gone() -> None:
    search, memory = LineSearch(WANTED), LineMemory()
    search.find(text(b"a 1\n" + filler(300) + b"d 1\n"), memory)
    assert names(search.find(text(b"a 1\n" + filler(300)), memory)) == ["a 1"]
    assert search.find(text(filler(300)), memory) == []


def test_no_more_lines_than_are_allowed_are_looked_at() -> None:
    body = b"a 1\n" * (3 * MAX_LINES)
    assert len(LineSearch(WANTED).find(text(body))) == MAX_LINES + 1
    assert len(LineSearch(WANTED).find(text(b"a 1\n" * MAX_LINES))) == MAX_LINES


blocks = st.lists(
    st.tuples(st.sampled_from([*WANTED, "other", "x"]), st.integers(0, 60), st.integers(0, 10**9)), max_size=8
)


def page_of(parts: list[tuple[str, int, int]]) -> bytes:
    return b"".join(b"%s %d\n" % (name.encode(), value) * count for name, count, value in parts)


@given(st.lists(blocks, min_size=1, max_size=6), st.sampled_from([0, 40, 400]))
def test_pages_that_keep_families_together_read_the_same_with_a_memory(
    pages: list[list[tuple[str, int, int]]], room: int
) -> None:
    """Whatever appears, goes, grows and moves: a page with the families of the last one reads as if nothing were known."""
    search, memory = LineSearch(WANTED), LineMemory()
    before = line_search._ROOM_BYTES
    known: set[str] | None = None
    try:
        line_search._ROOM_BYTES = room  # type: ignore[misc]  # small pages stand for long ones
        for parts in pages:
            together = list({name: (name, count, value) for name, count, value in parts}.values())
            body = page_of(together)
            here = {name for name, count, _ in together if count and name in WANTED}
            found = search.find(text(body), memory)
            everything = LineSearch(WANTED).find(text(body))
            if known is None or here <= known:
                assert found == everything
            known = here if found == everything else known
    finally:
        line_search._ROOM_BYTES = before  # type: ignore[misc]


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
def test_no_bytes_make_the_search_with_a_memory_find_what_is_not_there(pages: list[bytes]) -> None:
    search, memory = LineSearch(WANTED), LineMemory()
    for body in pages:
        for page in (body, b"a 1\n" + body):
            found = search.find(text(page), memory)
            everywhere = iter(re.findall(rb"(?m)^[ \t]*(a|b:c|d)(?=[{ \t\r\n]|\Z)([^\n]*)", page))
            assert all(line in everywhere for line in found)
