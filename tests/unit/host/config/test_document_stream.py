"""A text of several documents: where each begins, and that nothing of it is lost."""

import pytest
import yaml
from hotbay.config.document_stream import split_documents
from hotbay.config.documents import load_document
from hypothesis import given
from hypothesis import strategies as st

LINES = st.lists(
    st.sampled_from(["a: 1", "b: [x]", "---", "--- c", "...", "# note", "", "- d", "  e", "---\t"]), max_size=12
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", []),
        ("# nothing\n---\n", []),
        ("a: 1\n", [{"a": 1}]),
        ("---\na: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("a: 1\n---\n---\nb: 2", [{"a": 1}, {"b": 2}]),
        ("a: 1\n...\n---\nb: 2\n...\n", [{"a": 1}, {"b": 2}]),
        ("a: 1\r\n---\r\nb: 2\r\n", [{"a": 1}, {"b": 2}]),
        ("\ufeffa: 1\n--- {b: 2}\n", [{"a": 1}, {"b": 2}]),
        ("a: '---'\nb: ---x\n", [{"a": "---", "b": "---x"}]),
        ("a: |\n  ---\n  text\n", [{"a": "---\ntext\n"}]),
        ('{"a": 1}', [{"a": 1}]),
    ],
)
def test_documents_are_split_at_their_markers(text, values):
    assert [load_document(part, file="f").value for part in split_documents(text)] == values


def test_every_document_keeps_its_lines():
    parts = split_documents("# first\na: 1\n---\n# second\nb: 2\n...\n\n---\nc: 3\n")
    documents = [load_document(part, file="f") for part in parts]
    assert [document.place(key).line for document, key in zip(documents, ("a", "b", "c"), strict=True)] == [2, 5, 9]


@given(LINES)
def test_documents_are_those_that_a_parser_of_streams_finds(lines):
    text = "\n".join(lines) + "\n"
    try:
        expected = [value for value in yaml.safe_load_all(text) if value is not None]
    except yaml.YAMLError:
        return
    # Not by the strict reader: a key may stand twice here.
    assert [yaml.safe_load(part) for part in split_documents(text)] == expected
