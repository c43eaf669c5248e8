"""The operator's word in its file: whole or as it was, and damaged ones named."""

from pathlib import Path

import pytest
from hotbay.datalayer.endpoint import EndpointState
from hotbay.datalayer.operations.overrides import Override, OverrideFile, decoded, encoded, with_word
from hotbay.errors import CapacityError, InputError
from hypothesis import given
from hypothesis import strategies as st

WORDS = st.builds(
    Override,
    state=st.none() | st.sampled_from(EndpointState),
    weight=st.none() | st.floats(0, 1),
    who=st.text(st.characters(codec="utf-8"), max_size=10),
    at_s=st.floats(0, 4e9),
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=20), WORDS, max_size=10))
def test_what_is_written_is_read(words: dict[str, Override]) -> None:
    said = with_word({}, words)
    assert decoded(encoded(said)) == said
    assert all(word.state is not None or word.weight is not None for word in said.values())


def test_a_word_that_is_taken_back_leaves_nothing() -> None:
    said = with_word({"a": Override(weight=0.5), "b": Override(EndpointState.CORDONED)}, {"a": Override(who="me")})
    assert list(said) == ["b"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version": 2, "endpoints": []}',
        b'{"version": 1}',
        b'{"version": 1, "endpoints": [1]}',
        b'{"version": 1, "endpoints": [{"id": 3}]}',
        b'{"version": 1, "endpoints": [{"id": "a", "state": "gone"}]}',
        b'{"version": 1, "endpoints": [{"id": "a", "weight": 1.1}]}',
        b'{"version": 1, "endpoints": [{"id": "a", "weight": true}]}',
        b'{"version": 1, "endpoints": [{"id": "a", "weight": "1"}]}',
        b"\xff\xfe",
    ],
)
def test_damaged_file_is_named_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    file = OverrideFile(tmp_path)
    file.path.write_bytes(content)
    with pytest.raises(InputError, match=r"endpoints\.json") as caught:
        file.read()
    assert "remove it" in caught.value.hint


@given(st.binary(max_size=80))
def test_no_bytes_break_the_reader(content: bytes) -> None:
    try:
        decoded(content)
    except ValueError:
        return


def test_without_a_file_nothing_was_said(tmp_path: Path) -> None:
    assert OverrideFile(tmp_path).read() == {}


def test_too_large_a_file_is_not_read(tmp_path: Path) -> None:
    file = OverrideFile(tmp_path)
    file.path.write_bytes(b" " * ((8 << 20) + 1))
    with pytest.raises(InputError, match="larger than"):
        file.read()


def test_file_that_cannot_be_written_keeps_what_it_held(tmp_path: Path) -> None:
    file = OverrideFile(tmp_path / "gone")
    with pytest.raises(CapacityError) as caught:
        file.write({"a": Override(weight=0.5)})
    assert "nothing was changed" in caught.value.hint
    assert file.read() == {}


@pytest.mark.parametrize("over", [0, 1])
def test_what_could_not_be_read_again_is_not_written(tmp_path: Path, over: int) -> None:
    file = OverrideFile(tmp_path)
    file.write({"kept": Override(weight=0.5)})
    room = (8 << 20) - len(encoded({"": Override(EndpointState.CORDONED)}))
    words = {"x" * (room + over): Override(EndpointState.CORDONED)}
    if not over:
        file.write(words)
        assert file.read() == words
        return
    with pytest.raises(InputError, match=r"hotbay endpoints uncordon") as caught:
        file.write(words)
    assert "at most 8388608 bytes" in str(caught.value.problems[0])
    assert list(file.read()) == ["kept"]
