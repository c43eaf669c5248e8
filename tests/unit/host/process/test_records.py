"""Levels of a plugin's lines, and which of them are one record."""

import logging

import pytest
from hotbay.process.records import RECORD_CHARS, RecordJoiner
from hypothesis import given
from hypothesis import strategies as st

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR


def joined(*lines):
    records = []
    joiner = RecordJoiner(lambda *record: records.append(record))
    for line in lines:
        joiner.take(line)
    joiner.flush()
    return records


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("DEBUG queue: x", logging.DEBUG),
        ("INFO queue: x", INFO),
        ("WARNING queue: x", WARNING),
        ("ERROR queue: x", ERROR),
        ("ERROR:root:x", ERROR),
        ("CRITICAL:root:x", ERROR),
        ("ERRORS were made", INFO),
        ("error: x", INFO),
        (" ERROR x", INFO),
        ("", INFO),
    ],
)
def test_level_is_the_first_word(line, level):
    assert joined(line) == [(level, line, ())]


def test_indented_lines_below_a_level_belong_to_it():
    assert joined("ERROR a: boom", "      File x", "    y", "INFO a: next", "plain", "  indented") == [
        (ERROR, "ERROR a: boom", ("      File x", "    y")),
        (INFO, "INFO a: next", ()),
        (INFO, "plain", ()),
        (INFO, "  indented", ()),
    ]


TRACEBACK = ("Traceback (most recent call last):", '  File "x", line 1', "    raise", "ValueError: boom")


def test_a_bare_traceback_is_one_error_with_its_last_line():
    assert joined(*TRACEBACK, "after") == [(ERROR, TRACEBACK[0], TRACEBACK[1:]), (INFO, "after", ())]


def test_a_traceback_ends_at_the_next_record():
    assert joined(*TRACEBACK[:2], "WARNING a: b", "c") == [
        (ERROR, TRACEBACK[0], TRACEBACK[1:2]),
        (WARNING, "WARNING a: b", ()),
        (INFO, "c", ()),
    ]


def test_what_follows_a_flush_has_the_same_level():
    records = []
    joiner = RecordJoiner(lambda *record: records.append(record))
    for line in TRACEBACK:
        joiner.take(line)
        joiner.flush()
    assert records == [(ERROR, line, ()) for line in TRACEBACK]


@pytest.mark.parametrize(("last", "count"), [(RECORD_CHARS - 106, 1), (RECORD_CHARS - 105, 2)])
def test_a_record_is_bounded(last, count):
    lines = ("ERROR " + "x" * 100, " " * last)
    assert [level for level, _, _ in joined(*lines)] == [ERROR] * count


@given(st.lists(st.text(alphabet=" \tExT:", max_size=9) | st.sampled_from(["ERROR x", "INFO:", " ", *TRACEBACK])))
def test_no_line_is_lost_or_moved(lines):
    assert [line for _, first, below in joined(*lines) for line in (first, *below)] == lines
