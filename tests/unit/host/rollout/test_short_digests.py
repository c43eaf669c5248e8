"""A digest may be named by its beginning, if that is one digest's alone."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from hotbay.errors import InputError
from hotbay.rollout.events import EventLog
from hotbay.rollout.operations import Operations, Ports
from hotbay.rollout.selection import Candidate, Policy
from hotbay.rollout.state import Facts
from hotbay.store.digests import Digest
from hotbay.store.world.engine import Put
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import ManifestRef, Pin, Quarantine

pytestmark = pytest.mark.anyio

SHARED = "sha256:" + "a" * 16
ONE, TWO, OTHER = (Digest((SHARED + mark * 64)[: len("sha256:") + 64]) for mark in "012")
ALONE = Digest("sha256:" + "b" * 64)


async def begin() -> tuple[MemoryWorld, Operations]:
    world = MemoryWorld()
    held = [Quarantine(d, "sample", rev, "CRASHED", "x", 1, 0.0) for rev, d in enumerate((ONE, TWO, ALONE))]
    refs = [ManifestRef("sample", rev, "p", d, "mine", f"at/{rev}", b"") for rev, d in enumerate((ONE, TWO, ALONE))]
    await world.transact(lambda _view: [Put(record) for record in (*held, *refs)])
    supervisor = SimpleNamespace(
        world=world,
        routines={},
        follow=lambda: None,
        facts=lambda _: Facts(candidates=(Candidate(ALONE, 2, "p", complete=True),), policy=Policy(("p",))),
        services=SimpleNamespace(
            now=lambda: 0.0, wall=lambda: 0.0, settings=lambda _: SimpleNamespace(platforms=("p",))
        ),
        catalog=SimpleNamespace(plugin_ids=lambda: ("sample",)),
    )
    ports = Ports(status=dict, lines=lambda _: (), collect=None, bindings=tuple)
    return world, Operations(supervisor, EventLog(lambda: 0.0), ports)


@pytest.mark.parametrize(("digits", "known"), [(11, False), (12, True), (63, True), (64, True)])
async def test_beginning_of_at_least_12_digits_is_enough(digits: int, known: bool) -> None:
    world, operations = await begin()
    text = ALONE[: len("sha256:") + digits]
    with nullcontext() if known else pytest.raises(InputError, match=r"nothing of .* is in quarantine"):
        await operations.clear_quarantine(text, "ann")
    assert (world.view.get(Quarantine, ALONE) is None) is known
    with nullcontext() if known else pytest.raises(InputError, match="is not known"):
        assert (await operations.pin("sample", digest=text, who="ann"))["digest"] == ALONE
    assert (world.view.get(Pin, "sample") is not None) is known


async def test_beginning_of_several_digests_is_refused_and_they_are_named() -> None:
    world, operations = await begin()
    for asked in (
        operations.clear_quarantine(SHARED, "ann"),
        operations.pin("sample", digest=SHARED, who="ann"),
    ):
        with pytest.raises(InputError, match="is the beginning of 2 digests") as refused:
            await asked
        assert ONE in refused.value.hint
        assert TWO in refused.value.hint
    assert len(world.view.all(Quarantine)) == 3


async def test_beginning_of_none_is_unknown() -> None:
    _, operations = await begin()
    with pytest.raises(InputError, match=r"nothing of .* is in quarantine"):
        await operations.clear_quarantine(OTHER[:40], "ann")
    with pytest.raises(InputError, match="is not known"):
        await operations.pin("sample", digest=OTHER[:40], who="ann")
