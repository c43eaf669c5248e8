"""Types whose own tests are tables: each beside its plain definition of one endpoint or one request, for whatever there is."""

import math
from collections.abc import Iterator, Sequence

import pytest
from hotbay_flow_control import plugin as flow_control
from hotbay_prefix_cache import plugin as prefix_cache
from hotbay_prefix_cache.p2p import HEADER, drawn
from hotbay_sdk import Edits, InFlightRequest
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

MATCHED, BLOCK = "PrefixCacheMatchInfo.matched_blocks", "PrefixCacheMatchInfo.block_size_tokens"
LEAST_TOKENS = 32

blocks = st.integers(0, 9).map(float) | st.just(math.nan)
queues = st.integers(0, 9).map(float) | st.sampled_from([math.nan, -1.0])
addressed = st.sampled_from([True, True, True, False])
pods = st.lists(st.tuples(blocks, queues, addressed), min_size=3, max_size=6)
in_flight = st.lists(
    st.builds(InFlightRequest, st.uuids().map(str), st.integers(-3, 3), st.floats(0, 100, width=32)), max_size=12
)


@pytest.fixture(scope="module")
def p2p() -> Iterator[PluginHarness]:
    with PluginHarness(prefix_cache) as made:
        made.configure("p2p", "p2p-source-producer", {"minCachedTokenDelta": LEAST_TOKENS})
        yield made


@pytest.fixture(scope="module")
def eviction() -> Iterator[PluginHarness]:
    with PluginHarness(flow_control) as made:
        made.configure("filter", "sheddable-eviction-filter")
        made.configure("order", "priority-then-time-eviction-order-policy")
        yield made


def plain_source(
    pool: Sequence[tuple[float, float, bool]], computing: int, block_tokens: float, name: str
) -> str | None:
    """Of those that hold most, have an address and hold enough more than the one that computes: the one that is drawn."""
    holding = {row: held for row, (held, _, addressed) in enumerate(pool) if addressed and held > 0}
    if not holding or not block_tokens > 0:
        return None
    most = max(holding.values())
    here = pool[computing][0] if pool[computing][0] > 0 else 0.0
    if (most - here) * block_tokens < LEAST_TOKENS:
        return None
    waiting = {row: pool[row][1] if pool[row][1] >= 0 else 0.0 for row, held in holding.items() if held == most}
    return f"10.0.0.{drawn(name, waiting)}:8000"


@given(
    pool=pods,
    computing=st.integers(0, 5),
    block_tokens=st.sampled_from([16.0, 64.0, 64.0, math.nan]),
    name=st.text(max_size=4),
)
def test_source_of_blocks_is_that_of_the_plain_definition(
    p2p: PluginHarness, pool: list[tuple[float, float, bool]], computing: int, block_tokens: float, name: str
) -> None:
    computing %= len(pool)
    endpoints = {
        f"e{row}": {"waiting": waiting, **({"address": f"10.0.0.{row}:8000"} if addressed else {})}
        for row, (_, waiting, addressed) in enumerate(pool)
    }
    data = {MATCHED: [held for held, _, _ in pool], f"{BLOCK}/request": [block_tokens]}
    edits = p2p.pre_request("p2p", endpoints, [f"e{computing}"], {"id": name}, data=data)
    assert isinstance(edits, Edits)
    assert edits.request == {HEADER: plain_source(pool, computing, block_tokens, name)}


@given(requests=in_flight)
def test_those_that_may_be_given_up_are_below_0_and_the_least_important_and_youngest_comes_first(
    eviction: PluginHarness, requests: list[InFlightRequest]
) -> None:
    accepted = eviction.eviction_filter("filter", requests)
    assert list(accepted) == [request for request in requests if request.priority < 0]
    ordered = eviction.eviction_order("order", requests)
    assert sorted(request.id for request in ordered) == sorted(request.id for request in requests)
    places = [(request.priority, -request.started_s) for request in ordered]
    assert places == sorted(places)
