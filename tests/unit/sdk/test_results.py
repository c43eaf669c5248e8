"""What authors return, packed: lengths are checked, what is no number counts as NaN."""

import math
import struct
from array import array

import numpy as np
import pytest
from hotbay_sdk import _bits, _results
from hotbay_sdk._errors import BadResultError
from hypothesis import given
from hypothesis import strategies as st


def floats(packed: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(packed) // 4}f", packed))


ROWS = [[0.0, 0.25, 0.5], [0.75, 1.0, 0.125]]


@pytest.mark.parametrize(
    "result",
    [
        ROWS,
        tuple(tuple(row) for row in ROWS),
        np.array(ROWS, dtype=np.float32),
        np.array(ROWS, dtype=np.float64),
        np.array(ROWS, dtype=np.float32).T.copy().T,
        np.array(ROWS, dtype=np.float16),
        np.array(ROWS, dtype=">f4"),
        np.array([ROWS[0] * 2, ROWS[1] * 2], dtype=np.float32)[:, :3],
        [np.array(row, dtype=np.float32) for row in ROWS],
        [array("f", row) for row in ROWS],
        [array("d", row) for row in ROWS],
        [array("f", ROWS[0]), ROWS[1]],
        array("f", ROWS[0] + ROWS[1]),
        memoryview(array("d", ROWS[0] + ROWS[1])),
    ],
    ids=lambda result: type(result).__name__,
)
def test_matrix_takes_every_form(result):
    assert [floats(row) for row in _results.matrix(result, 2, 3, "score_batch")] == ROWS


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ([[1.0, 2.0, 3.0]], "returned 1 rows, expected 2"),
        ([[1.0, 2.0, 3.0], [1.0]], "row 1, has 1 values, expected 3"),
        (np.zeros((3, 2), dtype=np.float32), r"shape \(3, 2\), expected \(2, 3\)"),
        ([np.zeros(2, dtype=np.float32)] * 2, "row 0, has 2 values, expected 3"),
        ([np.zeros((1, 3), dtype=np.float32)] * 2, r"row 0, has shape \(1, 3\), expected 3"),
        (None, "returned a NoneType"),
        ("0.5", "returned a str"),
        ({0: [1.0]}, "returned a dict"),
        ([{0.1, 0.2, 0.3}] * 2, "row 0, returned a set"),
    ],
    ids=str,
)
def test_matrix_of_another_shape_is_a_bad_result(result, text):
    with pytest.raises(BadResultError, match=text):
        _results.matrix(result, 2, 3, "score_batch")


NO_NUMBERS = [None, "0.5", b"1", True, np.True_, object(), 10**400, [1], complex(1, 1)]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: type(value).__name__)
def test_s03_what_is_no_number_becomes_nan(value):
    assert math.isnan(_results.number(value))


@pytest.mark.parametrize(
    ("value", "expected"), [(1, 1.0), (0.5, 0.5), (np.float32(0.5), 0.5), (np.float64(0.25), 0.25), (np.int64(2), 2.0)]
)
def test_numbers_of_all_kinds_count(value, expected):
    assert _results.number(value) == expected


def test_number_beyond_float32_is_infinite_not_an_error():
    assert floats(_results.vector([1e308, -1e308], 2, "x", "endpoint")) == [math.inf, -math.inf]


@pytest.mark.parametrize(
    "result",
    [
        [[True, False, 1], [0, "x", None]],
        np.array([[1, 0, 1], [0, 1, 0]], dtype=np.bool_),
        np.array([[2, 0, 1], [0, 1, 0]], dtype=np.uint8),
        np.array([[0.5, 0, 1], [0, 1, 0]], dtype=np.float32),
        [b"\x01\x00\x05", np.array([0, 1, 0], dtype=np.bool_)],
        [np.array([1.0, 0.0, 2.0]), [0, 1, 0]],
    ],
    ids=lambda result: type(result).__name__,
)
def test_flag_rows_take_every_form(result):
    assert _results.flag_rows(result, 2, 3, "keep_batch") == [0b101, 0b010]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ([[True] * 3], "returned 1 rows, expected 2"),
        ([[True] * 3, [True]], "row 1, has 1 values, expected 3"),
        (np.zeros((2, 2), dtype=np.bool_), r"shape \(2, 2\)"),
        (None, "returned a NoneType"),
    ],
)
def test_flag_rows_of_another_shape_are_a_bad_result(result, text):
    with pytest.raises(BadResultError, match=text):
        _results.flag_rows(result, 2, 3, "keep_batch")


def test_forgotten_return_of_keep_is_a_bad_result():
    with pytest.raises(BadResultError, match="None"):
        _results.flag(None, "keep")


def test_s49_picked_rows_are_candidates_each_once():
    assert _results.picked_rows([3, 1, 3, 0, 7, -1, np.int64(2)], 0b1110, 5) == [3, 1, 2]


def test_picked_rows_stop_at_n():
    assert _results.picked_rows([1, 2, 3], 0b1110, 2) == [1, 2]


@pytest.mark.parametrize("result", [["a"], [True], [1.0], None, "ab", {1: 2}], ids=repr)
def test_picked_rows_of_another_kind_are_a_bad_result(result):
    with pytest.raises(BadResultError, match="pick returned"):
        _results.picked_rows(result, 0b11, 1)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, 2**n - 1))))
def test_bits_round_trip(rows_and_bits):
    rows, bits = rows_and_bits
    flags = _bits.to_flags(bits, rows)
    assert len(flags) == rows
    assert [bool(flag) for flag in flags] == [bool(bits >> row & 1) for row in range(rows)]
    assert _bits.from_flags(flags) == bits
    assert _bits.from_wire(_bits.to_wire(bits, rows)) == bits


@given(st.lists(st.tuples(st.floats(width=32), st.booleans()), min_size=1, max_size=70))
def test_blank_outside_zeroes_exactly_the_others(rows):
    values = array("f", [value for value, _ in rows]).tobytes()
    flags = bytes(member for _, member in rows)
    blanked = _bits.blank_outside(values, flags)
    for row, (_, member) in enumerate(rows):
        cell = slice(4 * row, 4 * row + 4)
        assert blanked[cell] == (values[cell] if member else bytes(4))
