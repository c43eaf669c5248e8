"""Refs that a collection forgets: what is selected is the same without them, and with them offered again."""

from collections.abc import Collection
from dataclasses import replace

import pytest
from hotbay.packages.manifest import Blob, Manifest, ProtocolRange
from hotbay.packages.ref_changes import changes_of
from hotbay.rollout.facts import PluginSettings, facts_of
from hotbay.rollout.selection import Candidate, select
from hotbay.store.digests import Digest
from hotbay.store.gc_plan import Demand, GcPlan, plan_gc
from hotbay.store.world.changes import apply_changes, view_of
from hotbay.store.world.engine import Delete, WorldView
from hotbay.store.world.records import WITHDRAWN, Completion, Floor, Locked, ManifestRef, Pin, Quarantine, Record
from hypothesis import given
from hypothesis import strategies as st

SETTINGS = PluginSettings(platforms=("l", "j"))


def manifest(rev: int, platform: str = "l", content: str = "") -> Manifest:
    return Manifest(
        id="a", publisher="hotbay", rev=rev, version="1.0.0", platform=platform, entrypoint="m:plugin", types=("t",),
        protocol=ProtocolRange(first=1, last=1), description=content,
        blobs=(Blob(name="m-1.0-py3-none-any.whl", digest=Digest(f"sha256:{'0' * 64}"), size=1),),
    )  # fmt: skip


MADE = [manifest(rev, platform, content) for rev in range(1, 5) for platform in "lj" for content in ("", "other")]
MANIFESTS = {made.digest: made for made in MADE}


def ref(made: Manifest, source: str = "s", *, offered: bool = False) -> ManifestRef:
    return ManifestRef("a", made.rev, made.platform, made.digest, source, "", made.canonical_bytes(), offered=offered)


def completion(made: Manifest) -> Completion:
    return Completion(made.digest, "a", made.rev, (), "e", "t", 0.0)


def quarantine(made: Manifest, code: str = "CRASHED") -> Quarantine:
    return Quarantine(made.digest, "a", made.rev, code, "", 1, 0.0)


def planned(view: WorldView, in_use: Collection[Digest] = ()) -> GcPlan:
    return plan_gc(view, demand=Demand(in_use), keep_versions=9, blobs_present={}, environments_present={})


def forgotten(view: WorldView, plan: GcPlan) -> WorldView:
    changes = [Delete(ManifestRef.kind, key) for key in plan.refs]
    return apply_changes(view, [*changes, *(Delete(Quarantine.kind, digest) for digest in plan.quarantines)])[0]


def eligible(view: WorldView) -> list[Candidate]:
    facts = facts_of(view, "a", SETTINGS, MANIFESTS, sources=["s", "t"], wall_s=0.0, now_s=0.0)
    return list(select(facts.candidates, facts.policy).eligible)


@pytest.mark.parametrize("floor", [2, 3])
def test_rolled_back_version_is_known_until_a_higher_revision_was_complete(floor: int) -> None:
    """Forgotten, other content under its revision would no longer conflict with it."""
    bad = manifest(2)
    view = view_of(1, [ref(bad), quarantine(bad), Floor("a", floor)])
    plan = planned(view)
    assert plan.refs == ((ref(bad).key,) if floor == 3 else ())
    assert plan.quarantines == ()
    assert forgotten(view, plan).get(Quarantine, bad.digest) == quarantine(bad)


def test_other_content_of_a_build_that_is_kept_is_kept_too() -> None:
    one, other = manifest(1), manifest(1, content="other")
    assert planned(view_of(1, [ref(one), ref(other, offered=True)])).refs == ()
    assert set(planned(view_of(1, [ref(one), ref(other)])).refs) == {ref(one).key, ref(other).key}


def test_quarantine_of_a_withdrawal_goes_with_the_last_ref() -> None:
    gone, complete = manifest(1), manifest(2)
    records = [ref(gone), ref(complete), completion(complete), Floor("a", 2)]
    records += [quarantine(gone, WITHDRAWN), quarantine(complete, WITHDRAWN)]
    plan = planned(view_of(1, records), in_use=[complete.digest])
    assert (plan.refs, plan.quarantines) == ((ref(gone).key,), (gone.digest,))


PICKED = st.sampled_from(MADE)
REFS = st.lists(st.builds(ref, PICKED, st.sampled_from("sst"), offered=st.booleans()), max_size=10)
OTHERS = st.one_of(
    PICKED.map(completion),
    st.builds(quarantine, PICKED, st.sampled_from(["CRASHED", WITHDRAWN])),
    st.builds(Pin, st.just("a"), st.none(), PICKED.map(lambda made: made.digest), st.just("me"), st.just(0.0)),
    st.builds(Pin, st.just("a"), st.integers(1, 4), st.none(), st.just("me"), st.just(0.0)),
    PICKED.map(lambda made: Locked("a", made.platform, made.digest, made.rev, "")),
)


@given(REFS, st.lists(OTHERS, max_size=3), st.lists(PICKED.map(lambda made: made.digest), max_size=2), st.booleans())
def test_selection_is_the_same_without_what_was_forgotten_and_when_it_is_offered_again(
    refs: list[Record], others: list[Record], in_use: list[Digest], has_floor: bool
) -> None:
    records = refs + others
    revs = [record.rev for record in records if isinstance(record, Completion)]
    floor = [Floor("a", max(revs))] if revs and has_floor else []
    before = view_of(1, [*records, *floor])
    plan = planned(before, in_use)
    after = forgotten(before, plan)
    gone = {key.partition("@")[0] for key in plan.refs}
    assert gone.isdisjoint({*in_use, *(pin.digest for pin in before.all(Pin))})
    assert eligible(after) == [each for each in eligible(before) if each.digest not in gone]
    assert not any(each.complete for each in eligible(before) if each.digest in gone)

    def offered_again(view: WorldView) -> WorldView:
        for source in "st":
            known = {each.key: each for each in view.all(ManifestRef) if each.source == source and each.offered}
            shown = [each for each in before.all(ManifestRef) if each.source == source and each.key in plan.refs]
            found = known | {each.key: replace(each, offered=True) for each in shown}
            changes = changes_of(view, source, found, withdrawn="keep", store=True, at_s=0.0)
            view = apply_changes(view, changes)[0]
        return view

    assert eligible(offered_again(after)) == eligible(offered_again(before))
