"""Objects in a folder's files: what is read, what is an event, and what a bad file keeps."""

from pathlib import Path

import pytest
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.source import EventType
from hotbay.datalayer.sources import objects as module
from hotbay.datalayer.sources.objects import NO_OBJECTS, changes, look, read_objects
from hotbay.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

POD = ObjectKind("", "v1", "Pod")
GOOD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: n}\nspec: {rank: %d}\n"
FOLDERS = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 2))


def pod(name, rank=0):
    return GOOD % (name, rank)


def read(text):
    return read_objects(text, POD, file="o.yaml")


def test_objects_of_the_kind_are_read_by_key():
    text = pod("a", 1) + "---\napiVersion: v1\nkind: Node\n---\n" + pod("b", 2).replace(", namespace: n", "")
    assert {key: value["spec"] for key, value in read(text).items()} == {"n/a": {"rank": 1}, "b": {"rank": 2}}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("- a\n", 1),
        ("kind: Pod\nmetadata: {name: a}\n", 1),
        ("apiVersion: v1\nkind: Pod\nmetadata: 3\n", 3),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: ''}\n", 3),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: 4}\n", 3),
        (pod("a") + "---\n" + pod("a"), 8),
        (pod("a") + "---\na: b: c\n", 6),
    ],
)
def test_a_document_that_is_no_object_is_refused_with_its_place(text, line):
    with pytest.raises(InputError) as caught:
        read(text)
    assert [(p.place.file, p.place.line) for p in caught.value.problems] == [("o.yaml", line)]


def test_all_that_is_wrong_with_a_file_is_told_at_once():
    with pytest.raises(InputError) as caught:
        read("- a\n---\n" + pod("a") + "---\n- b\n")
    assert len(caught.value.problems) == 2


@given(FOLDERS, FOLDERS)
def test_events_lead_from_one_state_to_the_other_and_nothing_twice(before, after):
    before, after = ({key: {"v": value} for key, value in state.items()} for state in (before, after))
    state = dict(before)
    events = changes(before, after, POD)
    for event in events:
        if event.type is EventType.DELETE:
            assert state.pop(event.key) == event.object
        else:
            assert state.get(event.key) != event.object
            state[event.key] = event.object
    assert state == after
    assert [event.type for event in events] == sorted((event.type for event in events), key=[*EventType].index)
    assert len({event.key for event in events}) == len(events)


def test_a_bad_file_keeps_what_it_last_gave_and_says_why(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(pod("a", 1))
    (tmp_path / "b.yaml").write_text(pod("b", 1))
    first = look(tmp_path, POD, NO_OBJECTS)
    (tmp_path / "a.yaml").write_text("a: b: c\n")
    (tmp_path / "b.yaml").write_text(pod("b", 2))
    second = look(tmp_path, POD, first)
    assert {key: value["spec"]["rank"] for key, value in second.objects.items()} == {"n/a": 1, "n/b": 2}
    assert [p.place.file for p in second.problems] == [str(tmp_path / "a.yaml")]
    # It is not read again, and neither forgets what it gave nor what is wrong.
    assert look(tmp_path, POD, second) == second
    (tmp_path / "a.yaml").write_text(pod("a", 3))
    third = look(tmp_path, POD, second)
    assert (third.objects["n/a"]["spec"]["rank"], third.problems) == (3, ())


def test_a_file_that_is_gone_takes_its_objects_along(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(pod("a"))
    first = look(tmp_path, POD, NO_OBJECTS)
    (tmp_path / "a.yaml").unlink()
    second = look(tmp_path, POD, first)
    assert (list(first.objects), list(second.objects), second.problems) == (["n/a"], [], ())


def test_a_renamed_file_is_no_event(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(pod("a"))
    first = look(tmp_path, POD, NO_OBJECTS)
    (tmp_path / "a.yaml").rename(tmp_path / "z.yml")
    assert changes(first.objects, look(tmp_path, POD, first).objects, POD) == ()


def test_a_folder_that_cannot_be_read_keeps_everything(tmp_path: Path):
    folder = tmp_path / "objects"
    assert "cannot be read" in str(look(folder, POD, NO_OBJECTS).problems[0])
    folder.mkdir()
    (folder / "a.yaml").write_text(pod("a"))
    first = look(folder, POD, NO_OBJECTS)
    folder.rename(tmp_path / "other")
    second = look(folder, POD, first)
    assert (second.objects, len(second.problems)) == (first.objects, 1)


def test_of_an_object_in_two_files_the_first_by_name_counts(tmp_path: Path):
    (tmp_path / "b.yaml").write_text(pod("a", 2))
    (tmp_path / "a.yaml").write_text(pod("a", 1))
    found = look(tmp_path, POD, NO_OBJECTS)
    assert found.objects["n/a"]["spec"] == {"rank": 1}
    assert [(p.code, p.place.file) for p in found.problems] == [("DUPLICATE_NAME", str(tmp_path / "b.yaml"))]


def test_hidden_files_and_those_of_other_kinds_are_left_alone(tmp_path: Path):
    for name in (".a.yaml", "a.txt", "a.yaml~", "..data"):
        (tmp_path / name).write_text("a: b: c\n")
    (tmp_path / "b.json").write_text('{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}}')
    found = look(tmp_path, POD, NO_OBJECTS)
    assert (list(found.objects), found.problems) == (["b"], ())


def test_a_folder_may_have_so_many_files_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_FILES", 2)
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(pod(name))
    first = look(tmp_path, POD, NO_OBJECTS)
    assert (list(first.objects), first.problems) == (["n/a", "n/b"], ())
    (tmp_path / "c.yaml").write_text(pod("c"))
    second = look(tmp_path, POD, first)
    assert (second.objects, [p.found for p in second.problems]) == (first.objects, ["3"])
