"""Quantities and durations of the reference's own language."""

import contextlib

import pytest
from hotbay.config.go_values import parse_go_duration_s, parse_quantity
from hotbay.config.quantities import QuantityError
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1024", 1024),
        (1024, 1024),
        ("1Gi", 1 << 30),
        ("1G", 10**9),
        ("500k", 500_000),
        ("1e9", 10**9),
        (1e9, 10**9),
        ("1.5Ki", 1536),
        ("100m", 1),
        ("1500m", 2),
        ("0", 0),
        (".5", 1),
        ("-1", -1),
        ("-1Ki", -1024),
    ],
)
def test_quantity_is_whole_units_counted_up(written, value):
    assert parse_quantity(written) == value


@pytest.mark.parametrize(
    "written", ["", "x", "1 Gi", "1gi", "1K", "1Gib", "0x10", True, None, [], "1e", "nan", "9" * 50]
)
def test_what_is_no_quantity_is_refused(written):
    with pytest.raises(QuantityError):
        parse_quantity(written)


def test_quantity_has_to_fit_63_bits():
    assert parse_quantity(str((1 << 63) - 1)) == (1 << 63) - 1
    with pytest.raises(QuantityError, match="below 2"):
        parse_quantity(str(1 << 63))


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("60s", 60.0),
        ("1m", 60.0),
        ("1m30s", 90.0),
        ("1.5h", 5400.0),
        ("200ms", 0.2),
        ("0s", 0.0),
        ("0", 0.0),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("-5s", -5.0),
        ("+5s", 5.0),
    ],
)
def test_duration_is_seconds_of_either_sign(written, seconds):
    assert parse_go_duration_s(written) == pytest.approx(seconds)


@pytest.mark.parametrize("written", ["", "5", "s", "5 s", "5sec", 5, 0, True, None, "1d", "--5s", "1h" + "1m" * 40])
def test_what_is_no_duration_is_refused(written):
    with pytest.raises(QuantityError):
        parse_go_duration_s(written)


def test_duration_is_bounded_as_63_bits_of_nanoseconds():
    assert parse_go_duration_s("2562047h") == pytest.approx(2562047 * 3600)
    with pytest.raises(QuantityError):
        parse_go_duration_s("2562048h")


@given(st.text(max_size=45) | st.integers() | st.floats())
def test_any_value_gives_a_number_or_the_one_error(value):
    for parse in (parse_quantity, parse_go_duration_s):
        with contextlib.suppress(QuantityError):
            assert parse(value) == parse(value)
