"""What is kept of an answer: as much as was asked for, and of the rest what is light."""

import sys

import pytest
from hotbay.scheduling.kept_answers import MAX_WEIGHED_BYTES, TOO_LONG, kept_part
from hotbay_sdk.protocol import Method
from hypothesis import given
from hypothesis import strategies as st

TEXT_BYTES = MAX_WEIGHED_BYTES - sys.getsizeof([None]) - sys.getsizeof("")
"""Of a text that is as heavy as answers may be, with the list of one answer around it."""


@pytest.mark.parametrize("method", [Method.ADMIT, Method.REQUEST_HEADERS, Method.PRE_REQUEST, Method.PICK])
def test_answers_are_kept_up_to_their_bytes(method):
    fits = "x" * TEXT_BYTES
    assert kept_part(method, 1, 1, [[fits], None]) == ([[fits], []], MAX_WEIGHED_BYTES)
    kept, held_bytes = kept_part(method, 1, 1, [[fits + "x"], None])
    assert (kept[0] is TOO_LONG, held_bytes) == (True, 0)


@pytest.mark.parametrize("method", [Method.PROFILE_PICK, Method.PROFILE_PROCESS, Method.SATURATION])
def test_answer_of_one_part_is_kept_as_it_came_or_not_at_all(method):
    for light in (["a", "b"], {"primary": "a"}, 0.5, None):
        if isinstance(light, list) and method is not Method.PROFILE_PICK:
            continue
        kept, held_bytes = kept_part(method, 1, 1, light)
        assert kept is light
        assert held_bytes > 0
    assert kept_part(method, 1, 1, {"x" * MAX_WEIGHED_BYTES: 1})[0] is TOO_LONG


@pytest.mark.parametrize("method", [Method.RUN, Method.SCREEN, Method.PRODUCE])
def test_scores_bits_and_columns_weigh_nothing_here(method):
    heavy = b"x" * (MAX_WEIGHED_BYTES + 1)
    if method is Method.RUN:
        result = [heavy, heavy, []]
        assert kept_part(method, 2, 1, result) == (result, 0)
    elif method is Method.SCREEN:
        assert kept_part(method, 1, 1, [heavy, []]) == ([heavy, []], 0)
    else:
        kept, held_bytes = kept_part(method, 1, 1, [{"Made.x": heavy}, []])
        assert kept == [{"Made.x": None}, []]
        assert 0 < held_bytes < 1000


@pytest.mark.parametrize("method", [Method.RUN, Method.SCREEN, Method.ADMIT])
def test_errors_are_kept_as_codes(method):
    errors = [[0, -1, {"code": "PLUGIN_ERROR", "message": "x" * 1000}], [0, 1, {"code": "y" * 1000}]]
    result = [b"", b"", errors] if method is Method.RUN else [[], errors]
    kept, held_bytes = kept_part(method, 1, 2, result)
    assert kept[-1] == [[0, -1, {"code": "PLUGIN_ERROR"}], [0, 1, {"code": "PLUGIN_ERROR"}]]
    assert 500 < held_bytes < 2000


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def held(value):
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return sys.getsizeof(value) + sum(map(held, inside))


@given(values)
def test_what_is_kept_is_counted_in_full(value):
    kept, held_bytes = kept_part(Method.PROFILE_PICK, 1, 1, value)
    assert kept is value
    assert held_bytes >= held(value)
