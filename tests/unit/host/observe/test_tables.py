"""Tables lose columns, never characters."""

import math

import pytest
from hotbay.observe.tables import Grid, cell

GRID = Grid(("id", "url", "n"), (0, 2, 1), (("default/server-with-a-name", "http://a.b.c:8000", "1"), ("x", "–", "22")))


def test_lines_have_their_natural_width():
    assert GRID.lines() == [
        "id                          url                n",
        "default/server-with-a-name  http://a.b.c:8000  1",
        "x                           –                  22",
    ]


@pytest.mark.parametrize(
    ("width", "names"),
    [(49, ("id", "url", "n")), (48, ("id", "n")), (30, ("id", "n")), (29, ("id",)), (5, ("id",))],
)
def test_columns_of_the_highest_rank_go_first(width, names):
    fitted = GRID.fitted(width)
    assert fitted.names == names
    assert set(GRID.without(fitted)) == set(GRID.names) - set(names)
    assert [len(row) for row in fitted.rows] == [len(names)] * 2


def test_a_long_name_folds_before_columns_go():
    long = Grid(("id", "n"), (0, 1), (("x" * 200, "1"),))
    assert long.fitted(40).names == ("id", "n")


def test_a_table_without_rows_is_its_header():
    assert Grid(("a", "b"), (0, 0), ()).lines() == ["a  b"]


def test_wide_characters_count_twice():
    assert Grid(("a", "b"), (0, 0), (("漢", "1"), ("xyz", "2"))).lines()[1:] == ["漢   1", "xyz  2"]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), ("", "–"), (0, "0"), ("a\x1b[31m\nb", "a\\x1b[31m\\nb"), ("[/x]", "[/x]")]
)
def test_cell_is_one_printable_line(value, text):
    assert cell(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (0.0, "0"), (0.25, "0.25"), (123456789.0, "123456789"), (math.nan, "nan"), (7, "7")]
)
def test_a_whole_number_has_no_fraction(value, text):
    assert cell(value) == text
