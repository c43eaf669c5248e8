"""Header values of servers that nobody here controls: what has no form counts as absent."""

import re

import pytest
from hotbay.packages.sources.headers import (
    Challenge,
    is_strong,
    next_link,
    parse_challenges,
    range_start,
    same_entity,
)
from hypothesis import given
from hypothesis import strategies as st

WORDS = st.from_regex(re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,10}", re.ASCII), fullmatch=True)
QUOTED = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@pytest.mark.parametrize(
    ("values", "challenges"),
    [
        (['Basic realm="tests"'], [Challenge("basic", {"realm": "tests"})]),
        (
            ['Bearer realm="https://auth.example/token",service="reg.example",scope="repository:a/b:pull,push"'],
            [
                Challenge(
                    "bearer",
                    {
                        "realm": "https://auth.example/token",
                        "service": "reg.example",
                        "scope": "repository:a/b:pull,push",
                    },
                )
            ],
        ),
        (
            ['Negotiate, Basic realm="a, b" , Bearer REALM=c'],
            [Challenge("negotiate"), Challenge("basic", {"realm": "a, b"}), Challenge("bearer", {"realm": "c"})],
        ),
        (["Basic", 'Bearer realm="x"'], [Challenge("basic"), Challenge("bearer", {"realm": "x"})]),
        ([r'Basic realm="say \"a\\b\""'], [Challenge("basic", {"realm": r'say "a\b"'})]),
        (['Bearer realm="one", realm="two"'], [Challenge("bearer", {"realm": "one"})]),
        (['Bearer realm="not closed'], [Challenge("bearer")]),
        (['realm="nobody\'s"'], []),
        (["", " , ,"], []),
        ([], []),
    ],
)
def test_challenges_are_read(values: list[str], challenges: list[Challenge]) -> None:
    assert list(parse_challenges(values)) == challenges


@given(st.lists(st.tuples(WORDS, st.dictionaries(WORDS.map(str.lower), QUOTED, max_size=3)), max_size=3))
def test_written_challenges_are_read_back(wanted: list[tuple[str, dict[str, str]]]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    value = ", ".join(
        f"{scheme} {', '.join(f'{key}={quoted(text)}' for key, text in parameters.items())}".rstrip()
        for scheme, parameters in wanted
    )

    assert parse_challenges([value]) == tuple(Challenge(scheme.lower(), parameters) for scheme, parameters in wanted)


@given(st.lists(st.text(max_size=60), max_size=3))
def test_no_challenge_raises(values: list[str]) -> None:
    for challenge in parse_challenges(values):
        assert challenge.scheme == challenge.scheme.lower()


@pytest.mark.parametrize(
    ("value", "start"),
    [
        ("bytes 0-9/10", 0),
        ("bytes 5-9/10", 5),
        ("Bytes 5-5/*", 5),
        (" bytes 5-9/10 ", 5),
        ("bytes 9-5/10", None),
        ("bytes */10", None),
        ("bytes 5-9", None),
        ("pages 5-9/10", None),
        ("bytes \N{ARABIC-INDIC DIGIT FIVE}-9/10", None),
        ("bytes " + "9" * 19 + "-1/2", None),
        ("", None),
        (None, None),
    ],
)
def test_the_start_of_a_range(value: str | None, start: int | None) -> None:
    assert range_start(value) == start


@pytest.mark.parametrize(
    ("value", "link"),
    [
        ('</v2/a/tags/list?last=x&n=5>; rel="next"', "/v2/a/tags/list?last=x&n=5"),
        ("</next>; rel=next", "/next"),
        ('</first>; rel="first", </second>; title="x"; rel="next"', "/second"),
        ('</first>; rel="prev"', None),
        ("next", None),
        ("", None),
        (None, None),
    ],
)
def test_the_link_to_the_next_page(value: str | None, link: str | None) -> None:
    assert next_link(value) == link


@given(st.text(max_size=80))
def test_no_link_raises(value: str) -> None:
    assert next_link(value) is None or f"<{next_link(value)}>" in value


def test_weak_tags_are_no_condition_but_name_the_same() -> None:
    assert is_strong('"a"')
    assert not is_strong('W/"a"')
    assert same_entity('W/"a"', '"a"')
    assert not same_entity('"a"', '"b"')
