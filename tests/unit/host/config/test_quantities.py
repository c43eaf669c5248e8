"""Durations and sizes: what is read, and what is refused with what was expected."""

import contextlib

import pytest
from hotbay.config.quantities import QuantityError, parse_duration_s, parse_size_bytes
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("30s", 30), ("250ms", 0.25), ("5m", 300), ("1h", 3600), ("1m30s", 90), ("1.5s", 1.5), ("10us", 1e-5), (0, 0)],
)
def test_duration_is_converted_to_seconds(written, seconds):
    assert parse_duration_s(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written", [30, 1.5, "30", "-1s", "1 s", "s", "", "1d", "1e3s", True, None, [], "9" * 50 + "s"]
)
def test_duration_of_another_form_is_refused(written):
    with pytest.raises(QuantityError, match="expected a duration such as 30s"):
        parse_duration_s(written)


def test_duration_bound_is_a_year():
    assert parse_duration_s("8784h") == 366 * 86400
    with pytest.raises(QuantityError, match="at most a year"):
        parse_duration_s("8785h")


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [("16MiB", 16 << 20), ("64KiB", 65536), ("64 KiB", 65536), ("1kB", 1000), ("12B", 12), ("1.5KiB", 1536), (0, 0)],
)
def test_size_is_converted_to_bytes(written, size_bytes):
    assert parse_size_bytes(written) == size_bytes


@pytest.mark.parametrize("written", [16, "16", "16mb", "16 m", "-1B", "1.0001B", "", None, False, "2000TiB"])
def test_size_of_another_form_is_refused(written):
    with pytest.raises(QuantityError):
        parse_size_bytes(written)


@given(st.text(max_size=50))
def test_no_text_raises_anything_but_quantity_error(text):
    for parse in (parse_duration_s, parse_size_bytes):
        with contextlib.suppress(QuantityError):
            assert parse(text) >= 0


@given(st.integers(0, 10_000), st.sampled_from(["ms", "s", "m"]))
def test_written_durations_are_read_back(number, unit):
    assert parse_duration_s(f"{number}{unit}") == pytest.approx(number * {"ms": 0.001, "s": 1, "m": 60}[unit])
