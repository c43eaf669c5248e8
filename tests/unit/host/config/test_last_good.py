"""The keeper of the last good value."""

from pathlib import Path

import pytest
from hotbay.config.last_good import FileContent, LastGood, Outcome, content_digest
from hotbay.config.picker_config import load_picker_config
from hotbay.errors import Place

PATH = Path("/etc/p.yaml")
A = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: a}]\n"
BROKEN = A + "plugins: []\n"
B = A.replace("type: a", "type: b")


def _parse(text):
    return load_picker_config(text, file="p.yaml")


@pytest.fixture
def keeper():
    return LastGood(_parse(A), _parse, file="p.yaml")


def _offer(keeper, text):
    return keeper.offer(FileContent(PATH, text.encode()))


def test_u17_a_serves_while_broken_and_b_comes_after(keeper):
    assert _offer(keeper, BROKEN) is Outcome.REFUSED
    assert keeper.value.plugins[0].type == "a"
    assert [(p.code, p.place) for p in keeper.problems] == [("DUPLICATE_KEY", Place("p.yaml", 4, 1))]
    assert _offer(keeper, B) is Outcome.APPLIED
    assert (keeper.value.plugins[0].type, keeper.problems) == ("b", ())


def test_going_back_to_what_is_in_force_clears_the_problems(keeper):
    _offer(keeper, BROKEN)
    assert _offer(keeper, A) is Outcome.UNCHANGED
    assert keeper.problems == ()


def test_content_that_says_the_same_changes_nothing_but_places(keeper):
    assert _offer(keeper, "# moved down\n" + A) is Outcome.UNCHANGED
    assert keeper.value.plugins[0].place.line == 4


def test_c11_other_encoding_is_no_change(keeper):
    assert keeper.offer(FileContent(PATH, ("\ufeff" + A).encode("utf-16-le"))) is Outcome.UNCHANGED


@pytest.mark.parametrize("text", ["", "# all commented out\n"])
def test_c09_emptied_file_is_refused(keeper, text):
    assert _offer(keeper, text) is Outcome.REFUSED
    assert [p.code for p in keeper.problems] == ["EMPTY_CONFIG"]
    assert keeper.value.plugins[0].type == "a"


def test_vanished_file_is_refused_with_the_reason(keeper):
    assert keeper.offer(FileContent(PATH, None, "No such file or directory")) is Outcome.REFUSED
    assert "No such file or directory" in keeper.problems[0].message


def test_bytes_that_are_no_text_are_refused(keeper):
    assert keeper.offer(FileContent(PATH, b"a: \xff")) is Outcome.REFUSED


def test_digest_tells_contents_and_reasons_apart():
    contents = [
        FileContent(PATH, b""),
        FileContent(PATH, b"a"),
        FileContent(PATH, None, "x"),
        FileContent(PATH, None, "y"),
    ]
    assert len({content.digest for content in contents}) == 4
    assert contents[1].digest == content_digest(b"a")
