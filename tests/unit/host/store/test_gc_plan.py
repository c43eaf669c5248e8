"""What is let go of: nothing that is needed, and everything that is not."""

import json
from collections.abc import Collection, Mapping

import pytest
from hotbay.store.digests import Digest, digest_of
from hotbay.store.gc_plan import Demand, GcPlan, plan_gc, wanted_parts
from hotbay.store.world.changes import view_of
from hotbay.store.world.records import Completion, History, Locked, ManifestRef, Pin, Quarantine, Record
from hypothesis import given
from hypothesis import strategies as st

NO_DEMAND = Demand()


def digest(name: str) -> Digest:
    return digest_of(name.encode())


def complete(plugin: str, rev: int, *blobs: str, platform: str = "L") -> Completion:
    name = f"{plugin}{rev}{platform}"
    return Completion(digest(name), plugin, rev, tuple((digest(b), 1) for b in blobs), f"env-{name}", "tree", 0.0)


def live(plugin: str, number: int, rev: int, *, platform: str = "L") -> History:
    return History(plugin, number, digest(f"{plugin}{rev}{platform}"), rev, "1.0", number, 0.0, "because", "me")


def quarantine(plugin: str, rev: int) -> Quarantine:
    return Quarantine(digest(f"{plugin}{rev}L"), plugin, rev, "CRASHED", "it did", 1, 0.0)


def ref(plugin: str, rev: int, *blobs: str, offered: bool = True) -> ManifestRef:
    named = [{"name": b, "digest": digest(b), "size": 1, "media_type": "t"} for b in blobs]
    content = json.dumps({"blobs": named}).encode()
    return ManifestRef(plugin, rev, "L", digest(f"{plugin}{rev}L"), "s", "l", content, offered=offered)


def plan(
    *records: Record,
    demand: Demand = NO_DEMAND,
    keep: int = 2,
    images: Mapping[Digest, Digest] | None = None,
    extra: Collection[str] = (),
) -> GcPlan:
    """With every blob and environment that the records name, and `extra` blobs, there."""
    view = view_of(1, records)
    blobs = {b: size for c in view.all(Completion) for b, size in c.blobs}
    blobs |= {c.digest: 10 for c in view.all(Completion)} | {digest(name): 100 for name in extra}
    blobs |= dict.fromkeys((images or {}).values(), 1000)
    environments = {c.environment: 10_000 for c in view.all(Completion)} | {"env-orphan": 10_000}
    return plan_gc(
        view,
        demand=demand,
        keep_versions=keep,
        blobs_present=blobs,
        environments_present=environments,
        images=images or {},
    )


def revs(found: GcPlan, plugin: str = "a", upto: int = 9) -> list[int]:
    return [rev for rev in range(upto) if digest(f"{plugin}{rev}L") in found.completions]


def test_nothing_there_is_nothing_to_do() -> None:
    found = plan_gc(view_of(1, []), demand=Demand(), keep_versions=1, blobs_present={}, environments_present={})
    assert (found.blobs, found.completions, found.environments, found.refs, found.size_bytes) == ((), (), (), (), 0)


def test_last_live_versions_are_kept_before_higher_revisions() -> None:
    records = [complete("a", rev) for rev in range(1, 6)]
    history = [live("a", 1, 1), live("a", 2, 2), live("a", 3, 1)]
    assert revs(plan(*records, *history, keep=2)) == [3, 4]
    assert revs(plan(*records, *history, keep=3)) == [3, 4]
    assert revs(plan(*records, *history, keep=4)) == [3]
    assert revs(plan(*records, keep=2)) == [1, 2, 3]


@pytest.mark.parametrize("keep", [0, 1])
def test_highest_revision_always_stays_because_it_would_be_fetched_again(keep: int) -> None:
    assert revs(plan(*[complete("a", rev) for rev in (1, 2, 3)], keep=keep)) == [1, 2]


def test_quarantined_versions_do_not_count_among_the_last() -> None:
    records = [complete("a", rev) for rev in (1, 2, 3, 4)]
    assert revs(plan(*records, live("a", 1, 4), quarantine("a", 4), quarantine("a", 3), keep=1)) == [1, 3, 4]


def test_builds_of_one_revision_are_one_version() -> None:
    records = [complete("a", 1), complete("a", 2), complete("a", 2, platform="J"), complete("a", 3)]
    found = plan(*records, keep=2)
    assert found.completions == (digest("a1L"),)


def test_plugins_are_counted_apart() -> None:
    records = [complete(plugin, rev) for plugin in "ab" for rev in (1, 2)]
    assert set(plan(*records, keep=1).completions) == {digest("a1L"), digest("b1L")}


@pytest.mark.parametrize(
    "reason",
    [
        Pin("a", 1, None, "me", 0.0),
        Pin("a", None, digest("a1L"), "me", 0.0),
        Locked("a", "L", digest("a1L"), 1, "me"),
    ],
)
def test_what_the_operator_chose_is_kept(reason: Record) -> None:
    records = [complete("a", rev, f"wheel{rev}") for rev in (1, 2, 3)]
    found = plan(*records, reason, keep=1)
    assert found.completions == (digest("a2L"),)
    assert set(found.blobs) == {digest("a2L"), digest("wheel2")}
    assert set(found.environments) == {"env-a2L", "env-orphan"}
    assert found.size_bytes == 10 + 1 + 20_000


@pytest.mark.parametrize("pin", [1, digest("a1L")])
def test_what_the_configuration_pins_is_kept_as_if_a_command_had_pinned_it(pin: int | str) -> None:
    records = [complete("a", rev, f"wheel{rev}") for rev in (1, 2, 3)]
    withdrawn = ref("a", 1, offered=False)
    demand = Demand(pinned=[("a", pin), ("another", 2)])
    found = plan(*records, withdrawn, demand=demand, keep=1)
    assert found.completions == (digest("a2L"),)
    assert found.refs == ()
    assert plan(*records, withdrawn, keep=1).completions == (digest("a1L"), digest("a2L"))
    pinned = ref("a", 1, "wheel1", offered=False)
    assert wanted_parts(view_of(1, [pinned]), demand) == {digest("wheel1")}


def test_what_runs_is_kept_even_in_quarantine() -> None:
    records = [complete("a", rev, f"wheel{rev}") for rev in (1, 2, 3)]
    found = plan(*records, quarantine("a", 1), keep=1, demand=Demand(in_use=[digest("a1L")]))
    assert found.completions == (digest("a2L"),)
    assert "env-a1L" not in found.environments


def test_u26_shared_blob_goes_with_the_last_package_that_names_it() -> None:
    a1, a2, b1 = complete("a", 1, "shared", "own"), complete("a", 2), complete("b", 1, "shared")
    found = plan(a1, a2, b1, keep=1)
    assert set(found.blobs) == {digest("a1L"), digest("own")}
    found = plan(a1, a2, b1, complete("b", 2), keep=1)
    assert digest("shared") in found.blobs


def test_image_goes_with_its_package() -> None:
    images = {digest("a1L"): digest("image1"), digest("a2L"): digest("image2")}
    found = plan(complete("a", 1), complete("a", 2), keep=1, images=images)
    assert set(found.blobs) == {digest("a1L"), digest("image1")}


def test_orphans_go() -> None:
    found = plan(complete("a", 1, "wheel"), extra=["orphan"])
    assert found.blobs == (digest("orphan"),)
    assert found.environments == ("env-orphan",)
    assert found.size_bytes == 10_100


@pytest.mark.parametrize(
    "demand",
    [
        Demand(fetching=[digest("a2L")]),
        Demand(in_use=[digest("a2L")]),
        Demand(fetching=[digest("part"), digest("a2L")]),
    ],
)
def test_fetch_under_way_keeps_its_blobs_and_every_environment(demand: Demand) -> None:
    """Blobs are known from the ref's manifest; which environment it builds is known to nobody yet."""
    found = plan(complete("a", 1), ref("a", 2, "part"), demand=demand, extra=["part", "other", "a2L"])
    assert found.blobs == (digest("other"),)
    assert found.environments == ()


def test_chosen_ref_that_is_not_complete_keeps_the_blobs_that_came() -> None:
    found = plan(ref("a", 2, "part"), Pin("a", 2, None, "me", 0.0), extra=["part", "other"])
    assert found.blobs == (digest("other"),)


def test_withdrawn_refs_go_once_nothing_needs_them() -> None:
    gone, kept, bad = ref("a", 1, offered=False), ref("a", 2, offered=False), ref("a", 3, offered=False)
    found = plan(gone, kept, bad, ref("a", 4), complete("a", 2), quarantine("a", 3))
    assert found.refs == (gone.key,)


def test_ref_of_no_manifest_names_no_blobs() -> None:
    broken = ManifestRef("a", 1, "L", digest("a1L"), "s", "l", b"[]")
    assert plan(broken, Pin("a", 1, None, "me", 0.0), extra=["x"]).blobs == (digest("x"),)
    assert wanted_parts(view_of(1, [broken]), Demand()) == frozenset()


def test_parts_of_what_is_offered_or_wanted_are_kept() -> None:
    records = [ref("a", 1, "one"), ref("a", 2, "two", offered=False), ref("a", 3, "three", offered=False)]
    records.append(ref("a", 4, "four", offered=False))
    view = view_of(1, [*records, Pin("a", 3, None, "me", 0.0)])
    assert wanted_parts(view, Demand(fetching=[digest("x"), digest("a4L")])) == {
        digest(name) for name in ("one", "three", "four", "x", "a4L")
    }


PLUGINS = st.sampled_from("ab")
REVS = st.integers(1, 4)
BLOBS = st.lists(st.sampled_from(["w1", "w2", "w3"]), max_size=3)
PLATFORMS = st.sampled_from("LJ")
RECORDS = st.one_of(
    st.builds(lambda p, r, b, f: complete(p, r, *b, platform=f), PLUGINS, REVS, BLOBS, PLATFORMS),
    st.builds(lambda p, n, r, f: live(p, n, r, platform=f), PLUGINS, st.integers(1, 5), REVS, PLATFORMS),
    st.builds(quarantine, PLUGINS, REVS),
    st.builds(lambda p, r: Pin(p, r, None, "me", 0.0), PLUGINS, REVS),
    st.builds(lambda p, r: Pin(p, None, digest(f"{p}{r}L"), "me", 0.0), PLUGINS, REVS),
    st.builds(lambda p, r: Locked(p, "L", digest(f"{p}{r}L"), r, "me"), PLUGINS, REVS),
    st.builds(lambda p, r, b, o: ref(p, r, *b, offered=o), PLUGINS, REVS, BLOBS, st.booleans()),
)
NAMES = st.lists(st.builds(lambda p, r, f: digest(f"{p}{r}{f}"), PLUGINS, REVS, PLATFORMS), max_size=2)


@given(st.lists(RECORDS, max_size=25), NAMES, NAMES, st.integers(0, 3), st.booleans())
def test_nothing_that_is_needed_goes(
    records: list[Record], in_use: list[Digest], fetching: list[Digest], keep: int, with_images: bool
) -> None:
    view = view_of(1, records)
    completions = view.all(Completion)
    images = {c.digest: digest_of(c.digest.encode()) for c in completions} if with_images else {}
    found = plan(
        *records, demand=Demand(in_use, fetching), keep=keep, images=images, extra=["w1", "w2", "w3", "orphan"]
    )
    left = [c for c in completions if c.digest not in found.completions]
    for completion in left:
        assert completion.environment not in found.environments
        assert not {completion.digest, *(blob for blob, _ in completion.blobs)} & {*found.blobs}
        assert images.get(completion.digest) not in found.blobs
    left_digests = {c.digest for c in left}
    needed = {*in_use, *fetching, *(line.digest for line in view.all(Locked))}
    needed |= {pin.digest for pin in view.all(Pin) if pin.digest}
    needed |= {
        c.digest for c in completions for pin in view.all(Pin) if (pin.plugin_id, pin.rev) == (c.plugin_id, c.rev)
    }
    assert not needed & {*found.blobs, *found.completions}
    assert digest("orphan") in found.blobs
    quarantined = {q.digest for q in view.all(Quarantine)}
    for plugin in "ab":
        good = {c.rev for c in completions if c.plugin_id == plugin and c.digest not in quarantined}
        kept = {c.rev for c in left if c.plugin_id == plugin and c.digest not in quarantined}
        assert len(kept) >= min(keep, len(good))
        assert max(good, default=0) in {*kept, 0}
        lives = {h.digest: h.number for h in sorted(view.all(History), key=lambda h: h.number)}
        last = sorted(
            {
                c.rev: max(
                    lives.get(o.digest, 0)
                    for o in completions
                    if (o.plugin_id, o.rev) == (plugin, c.rev) and o.digest not in quarantined
                )
                for c in completions
                if c.plugin_id == plugin and c.digest not in quarantined
            }.items(),
            key=lambda item: (item[1], item[0]),
            reverse=True,
        )[:keep]
        assert {rev for rev, _ in last} <= kept
    assert left_digests | {*found.completions} == {c.digest for c in completions}


@given(st.lists(RECORDS, max_size=25), NAMES, st.integers(0, 3))
def test_collecting_twice_finds_nothing_more(records: list[Record], in_use: list[Digest], keep: int) -> None:
    first = plan(*records, demand=Demand(in_use), keep=keep)
    gone = {*first.completions, *first.refs}
    kinds = (Completion, History, Locked, ManifestRef, Pin, Quarantine)
    left = [record for kind in kinds for record in view_of(1, records).all(kind)]
    left = [record for record in left if record.key not in gone or not isinstance(record, Completion | ManifestRef)]
    second = plan(*left, demand=Demand(in_use), keep=keep)
    assert second.completions == ()
    assert second.blobs == ()
    assert set(second.environments) <= {"env-orphan"}
