"""What is known of the packages in the world: read bit by bit it is as read at once, and what is forgotten is gone."""

from collections.abc import Sequence

import pytest
from hotbay.errors import CapacityError
from hotbay.packages.manifest import Blob, Manifest, ProtocolRange
from hotbay.rollout.catalog import Catalog
from hotbay.store.digests import Digest
from hotbay.store.world.changes import apply_changes, view_of
from hotbay.store.world.engine import Change, Delete, Put, WorldView
from hotbay.store.world.records import Completion, Floor, ManifestRef
from hypothesis import given
from hypothesis import strategies as st


def manifest(plugin: str, rev: int) -> Manifest:
    return Manifest(
        id=plugin, publisher="hotbay", rev=rev, version="1.0.0", platform="any", entrypoint="m:plugin",
        types=(f"type-{rev % 2}",), protocol=ProtocolRange(first=1, last=1),
        blobs=(Blob(name="m-1.0-py3-none-any.whl", digest=Digest(f"sha256:{'0' * 64}"), size=1),),
    )  # fmt: skip


MADE = {(plugin, rev): manifest(plugin, rev) for plugin in ("one", "two", "three") for rev in range(4)}


def ref(made: Manifest, source: str = "s", *, offered: bool = True) -> ManifestRef:
    content = made.canonical_bytes() if made.rev < 3 else b"unreadable"
    return ManifestRef(made.id, made.rev, "any", made.digest, source, "", content, offered=offered)


def completion(made: Manifest) -> Completion:
    return Completion(made.digest, made.id, made.rev, (), "e", "t", 0.0)


REFS = st.builds(ref, st.sampled_from(sorted(MADE)).map(MADE.get), st.sampled_from("st"), offered=st.booleans())
CHANGES = st.one_of(
    REFS.map(Put),
    REFS.map(lambda ref: Delete(ref.kind, ref.key)),
    REFS.map(lambda ref: Put(completion(MADE[ref.plugin_id, ref.rev]))),
    REFS.map(lambda ref: Delete(Completion.kind, ref.digest)),
    st.builds(Floor, st.sampled_from(["one", "two"]), st.integers(0, 3)).map(Put),
)


@given(st.lists(st.lists(CHANGES, max_size=5), max_size=8))
def test_read_after_each_change_it_is_as_read_once(transactions: list[list[Change]]) -> None:
    view, catalog = WorldView(), Catalog()
    for changes in transactions:
        before, (view, _) = view, apply_changes(view, changes)
        changed = catalog.read(view)
        ids = {*before.plugins, *view.plugins}
        assert changed == {plugin_id for plugin_id in ids if before.of(plugin_id) != view.of(plugin_id)}
        once = Catalog()
        once.read(view)
        assert catalog.manifests == once.manifests
        assert catalog.index({}) == once.index({})
        assert catalog.plugin_ids() == once.plugin_ids()
        assert [catalog.ref(digest) for digest in once.manifests] == [once.ref(digest) for digest in once.manifests]
        assert catalog.revision == view.revision


def test_ref_is_one_that_is_offered_and_types_are_of_what_can_be_had() -> None:
    made, gone, kept = MADE["one", 0], MADE["one", 1], MADE["two", 1]
    catalog = Catalog()
    catalog.read(
        view_of(1, [ref(made, "a"), ref(made, "b", offered=False), ref(gone, offered=False),
                    ref(kept, offered=False), completion(kept)])
    )  # fmt: skip
    assert catalog.ref(made.digest).source == "a"
    assert catalog.index({}).providers == {"type-0": ("one",), "type-1": ("two",)}
    assert catalog.plugin_ids() == ("one", "two")


def read_all(catalog: Catalog, views: Sequence[WorldView], *in_use: str) -> None:
    for view in views:
        catalog.read(view, in_use=lambda: in_use)


def test_what_the_world_forgot_is_forgotten_once_nothing_is_made_from_it() -> None:
    old, new = MADE["one", 0], MADE["one", 1]
    catalog = Catalog()
    both, newest = view_of(1, [ref(old), ref(new)]), view_of(2, [ref(new)])
    read_all(catalog, [both, newest, newest], old.digest)
    assert (catalog.manifest(old.digest), catalog.ref(old.digest)) == (old, ref(old))
    assert set(catalog.manifests) == {old.digest, new.digest}
    read_all(catalog, [newest], new.digest)
    assert set(catalog.manifests) == {new.digest}
    for look in (catalog.manifest, catalog.ref):
        with pytest.raises(CapacityError, match="known no more"):
            look(old.digest)
    catalog.read(both)
    assert catalog.ref(old.digest) == ref(old)


def test_manifest_that_cannot_be_read_is_told_once_while_it_is_known(caplog: pytest.LogCaptureFixture) -> None:
    view = view_of(1, [ref(MADE["one", 3])])
    catalog = Catalog()
    read_all(catalog, [view, view_of(2, [ref(MADE["one", 3]), Floor("one", 1)])])
    assert len(caplog.records) == 1
    read_all(catalog, [WorldView(3), view_of(4, [ref(MADE["one", 3])])])
    assert len(caplog.records) == 2
