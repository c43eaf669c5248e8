"""Pages of any shape become sheets for people."""

import io

import pytest
from hotbay.cli.answers import answer_sheet
from hotbay.cli.sheet import moment, size
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console


def shown(page, *, terminal=False, width=100):
    file = io.StringIO()
    answer_sheet(page).print(Console(file=file, force_terminal=terminal, width=width, color_system=None))
    return file.getvalue()


def test_message_comes_first_and_hint_last():
    page = {"hint": "wait", "plugin": "p", "forced": True, "freed_bytes": 2048, "message": "is stopped"}
    assert shown(page).splitlines() == [
        "is stopped",
        "plugin: p",
        "forced: yes",
        "freed: 2.0 KiB",
        "what to do: wait",
    ]


def test_table_has_the_columns_that_are_looked_for_first():
    page = {"rows": [{"digest": "d", "x": 1, "plugin": "p"}, {"plugin": "q", "why": "z"}]}
    lines = [line.split() for line in shown(page).splitlines()]
    assert lines == [["plugin", "why", "x", "digest"], ["p", "–", "1", "d"], ["q", "z", "–", "–"]]


def test_digest_goes_first_when_there_is_no_room():
    row = {"plugin": "p", "digest": "sha256:" + "0" * 64, "why": "w" * 30, "rev": 1}
    said = shown({"rows": [row]}, terminal=True, width=60)
    assert "left out for want of room: digest" in said


def test_digests_are_short_for_people_wherever_they_stand():
    digest = "sha256:" + "0123456789abcdef" * 4
    page = {"message": f"pinned {digest}", "rows": [{"why": f"pinned to {digest}", "digest": digest}], "digest": digest}
    said = shown(page)
    assert said.count("sha256:0123456789ab") == 4
    assert "sha256:0123456789abc" not in said


def test_what_was_cleared_is_said_so():
    assert shown({"cleared": [{"plugin": "p", "rev": 3}]}).splitlines()[0] == "cleared, and may run again:"


def test_versions_that_are_not_chosen_are_said_so():
    assert shown({"not_chosen": [{"plugin": "p", "rev": 3}]}).splitlines()[0] == "not chosen:"


def test_bytes_are_not_named_twice():
    assert shown({"bytes": 0}) == "size: 0 bytes\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"version": "1.0", "rev": 3, "digest": "d"}, "to: 1.0 rev 3"),
        ({"rev": 3}, "to: rev 3"),
        ({"digest": "d"}, "to: digest=d"),
        (None, "to: –"),
        ([], "to: none"),
        (["a", 1], "to: a, 1"),
    ],
)
def test_values_in_the_words_of_people(value, text):
    if isinstance(value, dict):
        assert text.removeprefix("to: ") in shown({"rows": [{"to": value}]})
    else:
        assert shown({"to": value}) == f"{text}\n"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1 << 40, "1.0 TiB"), (1 << 60, "1048576.0 TiB")],
)
def test_sizes(count, text):
    assert size(count) == text


@pytest.mark.parametrize("at_s", [float("inf"), float("nan"), 1e20, -1e20])
def test_time_that_no_calendar_has_is_a_number(at_s):
    assert moment(at_s) == str(at_s)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), _JSON, max_size=4), st.booleans())
def test_any_page_can_be_shown_and_acts_on_no_terminal(page, terminal):
    assert not set(shown(page, terminal=terminal)) & {"\x1b", "\r", "\x07"}
