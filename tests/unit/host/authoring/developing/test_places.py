"""Tracebacks name the author's files, and the innermost of their frames is where it happened."""

import pytest
from hotbay.authoring.developing.places import SourcePlaces
from hypothesis import given
from hypothesis import strategies as st

ROOT = "/tmp/hotbay-dev-x/state/environments"
SITE = f"{ROOT}/0a1b/site"
PLACES = SourcePlaces(
    ROOT, {"mine/__init__.py": "/home/me/p/mine/__init__.py", "mine/deep.py": "/home/me/p/src/mine/deep.py"}
)

TRACEBACK = f"""\
  File "{SITE}/hotbay_sdk/_serve.py", line 65, in load
    found = attribute_of(entrypoint)
  File "{SITE}/mine/__init__.py", line 4, in <module>
    from mine.deep import thing
  File "{ROOT}/ffff/site/mine/deep.py", line 12, in <module>
    1 / 0
  File "{SITE}/numpy/core.py", line 9, in f
ZeroDivisionError: division by zero"""


def test_installed_paths_become_the_authors() -> None:
    mapped = PLACES.mapped(TRACEBACK)
    assert 'File "/home/me/p/mine/__init__.py", line 4' in mapped
    assert 'File "/home/me/p/src/mine/deep.py", line 12' in mapped
    assert f'File "{SITE}/numpy/core.py", line 9' in mapped


def test_the_innermost_frame_of_the_author_is_the_place() -> None:
    assert PLACES.place(PLACES.mapped(TRACEBACK)) == "/home/me/p/src/mine/deep.py:12"


def test_frames_around_the_authors_are_left_out() -> None:
    own = PLACES.own_part(PLACES.mapped(TRACEBACK))
    assert own.startswith('  File "/home/me/p/mine/__init__.py", line 4')
    assert own.endswith("division by zero")


def test_a_traceback_without_the_author_stays_whole() -> None:
    text = f'  File "{SITE}/hotbay_sdk/_serve.py", line 65, in load\nImportError: no'
    assert (PLACES.place(text), PLACES.own_part(text)) == ("", text)


@pytest.mark.parametrize(
    "text",
    [
        f"{SITE}/mine/other.py",
        "/tmp/hotbay-dev-y/state/environments/0a1b/site/mine/__init__.py",
        f"{ROOT}/mine/__init__.py",
        "mine/__init__.py",
    ],
)
def test_other_paths_stay_as_they_are(text: str) -> None:
    assert PLACES.mapped(text) == text


def test_a_path_in_a_sentence_is_found() -> None:
    assert PLACES.mapped(f"see {SITE}/mine/deep.py:3, please") == "see /home/me/p/src/mine/deep.py:3, please"


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    mapped = PLACES.mapped(text)
    assert PLACES.place(mapped) in ("", PLACES.place(mapped))
    assert mapped.endswith(PLACES.own_part(mapped))
