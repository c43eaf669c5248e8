"""An error is the same at both ends of the admin socket."""

import orjson
import pytest
from hotbay.errors import CapacityError, HostError, InputError, PackageError, Place, PluginFault, Problem
from hotbay.gateway.admin_errors import error_of, error_page, internal_page, status_of
from hypothesis import given
from hypothesis import strategies as st

_TEXT = st.text(max_size=20)
_PLACES = st.none() | st.builds(Place, _TEXT, st.none() | st.integers(1, 9), st.none() | st.integers(1, 9))
_PROBLEMS = st.builds(Problem, _TEXT, _TEXT, _PLACES, _TEXT, _TEXT, _TEXT, _TEXT)
_ERRORS = st.lists(_PROBLEMS, min_size=1, max_size=3).map(InputError) | st.builds(
    lambda kind, code, message, hint: kind(code, message, hint=hint),
    st.sampled_from([HostError, PackageError, PluginFault, CapacityError]),
    _TEXT,
    _TEXT,
    _TEXT,
)


@given(_ERRORS)
def test_error_comes_back_as_it_was(error):
    found = error_of(orjson.loads(orjson.dumps(error_page(error))), status_of(error))
    assert type(found) is type(error)
    assert (found.code, found.message, found.hint) == (error.code, error.message, error.hint)
    if isinstance(error, InputError):
        assert isinstance(found, InputError)
        assert found.problems == error.problems


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError([Problem("CONFIG_INVALID", "m")]), 400),
        (InputError([Problem("NOT_FOUND", "m")]), 404),
        (InputError([Problem("UNKNOWN_PLUGIN", "m")]), 404),
        (InputError([Problem("METHOD_NOT_ALLOWED", "m")]), 405),
        (PackageError("DIGEST_CONFLICT", "m"), 409),
        (PluginFault("CRASHED", "m"), 502),
        (CapacityError("UNAVAILABLE", "m"), 503),
        (HostError("INTERNAL", "m"), 500),
    ],
)
def test_status_says_who_must_act(error, status):
    assert status_of(error) == status


def test_error_of_an_extension_keeps_the_class_that_is_known_here():
    class Own(PackageError):
        pass

    assert type(error_of(error_page(Own("C", "m")), 409)) is PackageError


def test_internal_fault_is_told_without_its_text():
    error = error_of(internal_page(), 500)
    assert (error.code, error.message) == ("INTERNAL", "the host failed")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "code", "message", "hint", "problems", "file", "line"]), inner)
    ),
)


@given(_JSON, st.integers(100, 599))
def test_any_page_is_some_error(page, status):
    assert isinstance(error_of(page, status), HostError)
