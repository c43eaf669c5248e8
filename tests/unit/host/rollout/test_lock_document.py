"""The operator's lock file: what is written is what is read, and what is wrong with one is told with its place."""

import json

import pytest
from hotbay.errors import InputError
from hotbay.rollout.lock_document import lock_changes, locked_now, read_lock, write_lock
from hotbay.store.digests import Digest
from hotbay.store.world.changes import view_of as view_at
from hotbay.store.world.engine import Delete, Put, WorldView
from hotbay.store.world.records import Completion, Locked, ManifestRef
from hypothesis import given
from hypothesis import strategies as st

LINES = st.lists(
    st.builds(
        Locked,
        plugin_id=st.sampled_from(["a", "b", "standard"]),
        platform=st.sampled_from(["python-cp311-linux-x86_64", "python-cp312-linux-x86_64"]),
        digest=st.binary(min_size=32, max_size=32).map(lambda raw: Digest(f"sha256:{raw.hex()}")),
        rev=st.integers(0, 2**64 - 1),
        signer=st.text(max_size=20),
    ),
    unique_by=lambda line: line.key,
)


@given(LINES)
def test_what_is_written_is_what_is_read(lines: list[Locked]) -> None:
    text = json.dumps(write_lock(lines))
    if any(line.rev >= 2**63 for line in lines):
        return
    assert sorted(read_lock(text, file="lock"), key=lambda line: line.key) == sorted(lines, key=lambda line: line.key)


LINE = {"id": "a", "platform": "p", "digest": f"sha256:{'0' * 64}", "rev": 1, "signer": ""}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "Other"}, "kind Lock"),
        ({"packages": {}}, "packages is a list"),
        ({"extra": 1}, "unknown field extra"),
        ({"packages": [{**LINE, "digest": "sha256:00"}]}, "64 hex digits"),
        ({"packages": [{**LINE, "rev": -1}]}, "a number from 0 up"),
        ({"packages": [{**LINE, "rev": True}]}, "a number from 0 up"),
        ({"packages": [{**LINE, "more": ""}]}, "nothing else"),
        ({"packages": [LINE, LINE]}, "stands there twice"),
    ],
)
def test_wrong_lock_file_is_refused_with_what_to_do(change: dict, told: str) -> None:
    document = {"apiVersion": "hotbay/v1alpha1", "kind": "Lock", "packages": [LINE], **change}
    with pytest.raises(InputError, match=told) as refused:
        read_lock(json.dumps(document), file="lock.yaml")
    assert "hotbay lock --out" in refused.value.hint
    assert str(refused.value.problems[0].place).startswith("lock.yaml:1:")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, None),
        ({"rev": 2}, "this digest is rev 1 of a for p, not rev 2"),
        ({"id": "b"}, "this digest is rev 1 of a for p, not rev 1 of b for p"),
        ({"platform": "q"}, "this digest is rev 1 of a for p, not rev 1 of a for q"),
        ({"rev": 2, "digest": f"sha256:{'1' * 64}"}, None),
    ],
)
def test_line_that_says_something_else_of_a_known_digest_is_refused(change: dict, told: str | None) -> None:
    ref = ManifestRef("a", 1, "p", Digest(LINE["digest"]), "mine", "", b"")
    known = {ref.digest: ref}.get
    text = json.dumps({**write_lock(()), "packages": [{**LINE, **change}]})
    if told is None:
        assert len(read_lock(text, file="lock.yaml", known=known)) == 1
        return
    with pytest.raises(InputError, match=told) as refused:
        read_lock(text, file="lock.yaml", known=known)
    assert str(refused.value.problems[0].place).startswith("lock.yaml:1:")


def view_of(*given: Locked | ManifestRef | Completion) -> WorldView:
    return view_at(1, given)


def test_lock_in_force_becomes_exactly_the_lines_of_the_file() -> None:
    old, kept, new = (Locked(name, "p", Digest(f"sha256:{name * 64}"), 1, "") for name in "abc")
    changes = lock_changes(view_of(old, kept), [kept, new])
    assert changes == [Delete("locked", "a/p"), Put(new)]


def test_only_what_is_complete_is_locked() -> None:
    digests = [Digest(f"sha256:{name * 64}") for name in "abc"]
    refs = [ManifestRef(f"p{n}", n, "linux", digest, "s", "", b"") for n, digest in enumerate(digests)]
    complete = Completion(digests[1], "p1", 1, (), "", "", 0.0)
    assert locked_now(view_of(*refs, complete), [*digests, "sha256:unknown"]) == (
        Locked("p1", "linux", digests[1], 1, ""),
    )
