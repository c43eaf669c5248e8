"""What a machine is told: the world and the operator's wishes, joined for one plugin or one key of it."""

from dataclasses import replace

import pytest
from hotbay.packages.manifest import Blob, Channel, Manifest, ProtocolRange
from hotbay.rollout.facts import PluginSettings, facts_of, plugin_of
from hotbay.rollout.selection import Pin, select
from hotbay.store.digests import Digest
from hotbay.store.world import records
from hotbay.store.world.changes import view_of as view_at
from hotbay.store.world.engine import WorldView

SETTINGS = PluginSettings(platforms=("python-cp311-linux-x86_64",))


def manifest(rev: int, **given: object) -> Manifest:
    fields = {
        "id": "sample", "publisher": "hotbay", "rev": rev, "version": "1.0.0", "platform": SETTINGS.platforms[0],
        "entrypoint": "m:plugin", "types": ("a",), "protocol": ProtocolRange(first=1, last=1),
        "blobs": (Blob(name="m-1.0-py3-none-any.whl", digest=Digest(f"sha256:{'0' * 64}"), size=1),),
    }  # fmt: skip
    return Manifest(**(fields | given))


def view_of(*given: records.Record) -> WorldView:
    return view_at(7, given)


def ref(made: Manifest, source: str = "s") -> records.ManifestRef:
    return records.ManifestRef(made.id, made.rev, made.platform, made.digest, source, "", made.canonical_bytes())


def told(*given: records.Record, made: tuple[Manifest, ...], settings: PluginSettings = SETTINGS, **more: object):
    known = {each.digest: each for each in made}
    return facts_of(
        view_of(*given, *(ref(each) for each in made)),
        "sample",
        settings,
        known,
        sources=["s"],
        wall_s=100.0,
        now_s=7.0,
        **more,
    )


ONE, TWO = manifest(1), manifest(2)


def test_versions_with_what_the_world_says_of_them() -> None:
    facts = told(
        records.Completion(ONE.digest, "sample", 1, (), "e", "t", 0.0),
        records.Quarantine(TWO.digest, "sample", 2, "CRASHED", "", 1, 0.0),
        records.Floor("sample", 1),
        made=(ONE, TWO),
    )
    one, two = sorted(facts.candidates, key=lambda c: c.rev)
    assert (one.complete, one.quarantined, one.granted, one.fetchable) == (True, False, True, True)
    assert (two.complete, two.quarantined) == (False, True)
    assert (facts.revision, facts.policy.floor_rev, facts.policy.locked) == (7, 1, None)


@pytest.mark.parametrize(("until_s", "holds"), [(None, True), (100.1, True), (100.0, False)])
def test_quarantine_lasts_until_its_time(until_s: float | None, holds: bool) -> None:
    entry = records.Quarantine(ONE.digest, "sample", 1, "CRASHED", "", 1, 0.0, until_s)
    assert told(entry, made=(ONE,)).candidates[0].quarantined is holds


def test_capabilities_are_granted_by_configuration_and_by_command() -> None:
    asks = manifest(3, capabilities=("net", "env"))
    by_command = records.Grant("sample", ("env",), "me", 0.0)
    assert not told(by_command, made=(asks,)).candidates[0].granted
    both = replace(SETTINGS, grants=frozenset({"net"}))
    assert told(by_command, made=(asks,), settings=both).candidates[0].granted


def test_pin_by_command_wins_over_that_of_the_configuration() -> None:
    settings = replace(SETTINGS, pin=Pin(rev=1))
    assert told(made=(ONE,), settings=settings).policy.pin == Pin(rev=1)
    pin = records.Pin("sample", None, TWO.digest, "me", 0.0)
    assert told(pin, made=(ONE, TWO), settings=settings).policy.pin == Pin(digest=TWO.digest)


def test_lock_leaves_nothing_else_to_choose() -> None:
    complete = [records.Completion(m.digest, "sample", m.rev, (), "e", "t", 0.0) for m in (ONE, TWO)]
    line = records.Locked("sample", ONE.platform, ONE.digest, 1, "")
    facts = told(*complete, line, made=(ONE, TWO))
    assert select(facts.candidates, facts.policy).target.rev == 1
    other = records.Locked("other", ONE.platform, ONE.digest, 1, "")
    facts = told(*complete, other, made=(ONE, TWO))
    assert select(facts.candidates, facts.policy).target is None


@pytest.mark.parametrize(
    ("settings", "revs"),
    [
        (SETTINGS, {1, 2, 3}),
        (replace(SETTINGS, publisher="hotbay"), {1, 2}),
        (replace(SETTINGS, channels=frozenset({"release"})), {1, 2, 3}),
    ],
)
def test_other_publishers_are_no_candidates(settings: PluginSettings, revs: set[int]) -> None:
    other = manifest(3, publisher="somebody", channel=Channel.RELEASE)
    facts = told(made=(ONE, TWO, other), settings=settings)
    assert {candidate.rev for candidate in facts.candidates} == revs


def test_denied_digests_may_not_even_go_on_running() -> None:
    settings = replace(SETTINGS, denied=frozenset({ONE.digest}))
    assert told(made=(ONE,), settings=settings).candidates[0].barred


def test_history_says_what_was_live_last_by_name_of_the_routine() -> None:
    def entry(name: str, number: int, made: Manifest) -> records.History:
        return records.History(name, number, made.digest, made.rev, "1.0.0", 1, 0.0, "", "")

    history = (entry("sample", 9, TWO), entry("sample", 10, ONE), entry("sample/key", 11, TWO))
    assert told(*history, made=(ONE, TWO)).last == ONE.digest
    assert plugin_of("sample/key") == plugin_of("sample") == "sample"


def test_disabled_plugin_does_not_run() -> None:
    assert not told(records.Disabled("sample", "me", 0.0), made=(ONE,)).runs
    assert not told(made=(ONE,), wanted=False).runs


@pytest.mark.parametrize(
    ("ends", "stale_at_s"), [((), None), ((None,), None), ((100.0, None), None), ((130.0, 107.5, 99.0), 14.5)]
)
def test_facts_are_stale_when_the_next_quarantine_ends(
    ends: tuple[float | None, ...], stale_at_s: float | None
) -> None:
    made = [manifest(rev) for rev in range(1, 5)]
    told_of = [
        records.Quarantine(each.digest, "sample", each.rev, "CRASHED", "", 1, 0.0, until_s)
        for each, until_s in zip(made, ends, strict=False)
    ]
    other = records.Quarantine(Digest("sha256:" + "f" * 64), "other", 1, "CRASHED", "", 1, 0.0, 101.0)
    assert told(*told_of, other, made=tuple(made)).stale_at_s == stale_at_s


def test_who_pinned_by_a_command_is_told_and_a_pin_of_the_configuration_is_nobodys() -> None:
    pin = records.Pin("sample", None, ONE.digest, "ann", 0.0)
    assert told(pin, made=(ONE,)).pinned_by == "ann"
    assert told(made=(ONE,), settings=replace(SETTINGS, pin=Pin(rev=1))).pinned_by is None
