"""Decisions and states over the admin socket: ages, what is kept, and what is said of an id that is not."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from hotbay.errors import InputError
from hotbay.gateway.admin_inspection import Inspection
from hotbay.scheduling.decision import Rejected
from hotbay.scheduling.explain import PlanFacts, Traces

pytestmark = pytest.mark.anyio
NOW_S, WALL_S = 100.0, 5000.0


@pytest.fixture
def anyio_backend():
    return "asyncio"


def decided(name, ended_s):
    return SimpleNamespace(
        request=SimpleNamespace(id=name, avoid=frozenset()),
        snapshot=SimpleNamespace(rows=1, epoch=1, ids=("default/a",), live=np.ones(1, np.bool_)),
        plan=SimpleNamespace(facts=PlanFacts(1, {}, 1)),
        candidates=SimpleNamespace(base=np.ones(1, np.bool_)),
        probe=None,
        begun_s=ended_s - 0.001,
        ended_s=ended_s,
        notes=[],
        ran=[],
        degraded=[],
        decision=Rejected(503, "x", "y"),
    )


def inspection(*decisions):
    traces = Traces(max_count=7, max_bytes=10_000)
    traces.keep(decisions)

    async def dump(ref):
        return {"ref": ref}

    return Inspection(lambda: traces, dump, now=lambda: NOW_S, wall=lambda: WALL_S)


async def test_ages_and_bounds_are_told():
    page = await inspection(decided("a", 40.0), decided("b", 98.0)).explain("b")
    [told] = page["decisions"]
    assert (told["at_s"], told["age_s"], told["us"]["total"]) == (4998.0, 2.0, 1000.0)
    assert page["kept"] == {
        "decisions": 2, "bytes": 2050, "max_decisions": 7, "max_bytes": 10_000, "oldest_age_s": 60.0,
    }  # fmt: skip


@pytest.mark.parametrize(("decisions", "said"), [
    ((), "no decision is kept"),
    ((decided("a", 40.0), decided("b", 98.0)), "2 decisions are kept, the oldest is 60 s old"),
])  # fmt: skip
async def test_id_that_is_not_kept_says_how_many_are_and_how_old(decisions, said):
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        await inspection(*decisions).explain("c")
    assert caught.value.code == "NOT_FOUND"
    assert "explain.keep" in str(caught.value.problems[0])


async def test_one_is_told_whole_and_several_without_their_endpoints():
    them = inspection(decided("a", 40.0), decided("b", 98.0))
    [whole] = (await them.latest(1))["decisions"]
    assert (whole["request"], whole["candidates"], whole["candidate_count"]) == ("b", ["default/a"], 1)
    both = (await them.latest(2))["decisions"]
    assert [told["request"] for told in both] == ["a", "b"]
    assert not any("candidates" in told or "steps" in told for told in both)
    assert (await inspection().latest(1))["decisions"] == []


async def test_of_one_request_the_latest_three_are_told():
    page = await inspection(*(decided("a", float(n)) for n in range(5))).explain("a")
    assert [told["age_s"] for told in page["decisions"]] == [98.0, 97.0, 96.0]


async def test_states_come_from_who_knows_them():
    assert await inspection().dump("x") == {"ref": "x"}
