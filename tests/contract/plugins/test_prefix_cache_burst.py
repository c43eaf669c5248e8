"""`burst-prefix-cache-producer`: requests of one window are placed together by what their prompts share."""

from collections import Counter
from collections.abc import Mapping, Sequence
from threading import Barrier, Thread

import pytest
from hotbay_prefix_cache import plugin
from hotbay_prefix_cache.placement import Waiting, place
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

TYPE = "burst-prefix-cache-producer"
MATCHED, TOTAL = "PrefixCacheMatchInfo.matched_blocks", "PrefixCacheMatchInfo.total_blocks"
BLOCK = "PrefixCacheMatchInfo.block_size_tokens"
PODS: Mapping[str, Mapping[str, float]] = {"a": {}, "b": {}, "c": {}}


def placed(
    prompts: Sequence[tuple[int, ...]],
    *,
    running: Mapping[str, float] | None = None,
    weights: Sequence[float] = (),
    pods: str = "abc",
    **how: int | None,
) -> str:
    burst = [
        Waiting(hashes, weights[number] if weights else 1, frozenset(pods), running or {})
        for number, hashes in enumerate(prompts)
    ]
    return "".join(name or "-" for name in place(burst, **how))


@pytest.mark.parametrize(
    ("prompts", "how", "expected"),
    [
        ([(1, 2)] * 4, {}, "aaaa"),
        ([(1,), (2,), (3,)], {}, "---"),
        ([(1,), (), (1,), ()], {}, "a-a-"),
        ([(1,), (2,), (1,), (2,)], {}, "abab"),
        ([(1,)] * 3 + [(2,)] * 3, {}, "aaabbb"),
        ([(1,)] * 5, {"max_per_endpoint": 2}, "aabbc"),
        ([(1,)] * 8, {"max_per_endpoint": 2}, "aabbccab"),
        ([(1, 2), (1, 2, 3)], {}, "--"),
        ([(1, 2), (1, 2, 3)], {"min_blocks": 2}, "ba"),
        ([(1, 2, 9), (1, 2, 3), (7, 7)], {"min_blocks": 2}, "ab-"),
    ],
    ids=[
        "equal prompts",
        "nothing in common",
        "no block",
        "two groups mixed",
        "two groups",
        "spill",
        "spill over",
        "a prefix alone",
        "a shared prefix beyond the fair share",
        "a pair and a stranger",
    ],
)
def test_prompts_are_placed_by_what_they_share(
    prompts: list[tuple[int, ...]], how: dict[str, int], expected: str
) -> None:
    assert placed(prompts, **how) == expected


def test_a_group_that_shares_a_prefix_goes_where_it_is_up_to_the_fair_share() -> None:
    longer, shorter, other = (1, 2, 3), (1, 2), (9, 9)
    prompts = [longer] * 2 + [shorter] * 2 + [other] * 2
    assert placed(prompts, pods="ab", min_blocks=2) == "aaaabb"
    assert placed(prompts, pods="abc", min_blocks=2) == "aabbcc"


def test_what_runs_already_breaks_ties_and_then_the_name() -> None:
    assert placed([(1,), (1,)], running={"a": 3, "b": 2, "c": 2}) == "bb"


def test_the_burst_is_balanced_by_weight() -> None:
    prompts = [(1,)] * 2 + [(2,)] * 2 + [(3,)] * 2 + [(4,)] * 2
    assert placed(prompts, pods="ab") == "aabbaabb"
    assert placed(prompts, pods="ab", weights=[9, 9, 1, 1, 1, 1, 1, 1]) == "aabbbbbb"


def test_nobody_to_go_to_places_nothing() -> None:
    assert placed([(1,), (1,)], pods="") == "--"


def test_each_request_stays_within_its_candidates() -> None:
    burst = [
        Waiting((1,), 1, frozenset("ab"), {}),
        Waiting((1,), 1, frozenset("b"), {}),
        Waiting((1,), 1, frozenset(), {}),
    ]
    assert place(burst) == ["a", "b", None]


bursts = st.lists(st.lists(st.integers(1, 4), max_size=4).map(tuple), max_size=30)


@given(bursts, st.integers(1, 5), st.integers(1, 4) | st.none(), st.integers(0, 3))
def test_groups_are_placed_whole_and_strangers_never(
    prompts: list[tuple[int, ...]], pods: int, most: int | None, min_blocks: int
) -> None:
    names = placed(prompts, pods="abcde"[:pods], max_per_endpoint=most, min_blocks=min_blocks)
    assert len(names) == len(prompts)
    for prompt, count in Counter(prompts).items():
        where = Counter(name for name, other in zip(names, prompts, strict=True) if other == prompt)
        if not prompt:
            assert where == {"-": count}
        elif count > 1:
            assert "-" not in where
            if most is None:
                assert len(where) == 1
            elif count <= most * pods:
                assert max(where.values()) <= most
        elif not min_blocks or sum(other[:min_blocks] == prompt[:min_blocks] for other in prompts) < 2:
            assert where == {"-": 1}


def test_a_call_of_several_requests_is_placed_together() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("burst", TYPE, {"windowDurationMs": 1, "blockSizeTokens": 32})
        requests = [{"prompt_hashes": hashes} for hashes in ([1, 2], [7], [1, 2], [])]
        made = harness.produce("burst", PODS, requests, candidates=["b", "c"])
    assert made == {
        MATCHED: [[0, 2, 0], [0, 0, 0], [0, 2, 0], [0, 0, 0]],
        TOTAL: [[2], [1], [2], [0]],
        BLOCK: [[32]] * 4,
    }


def test_only_the_beginning_of_a_prompt_is_compared_where_the_operator_says_so() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("burst", TYPE, {"windowDurationMs": 1, "maxPrefixTokensToMatch": 128})
        made = harness.produce("burst", PODS, [{"prompt_hashes": [1, 2, 3]}, {"prompt_hashes": [1, 2, 4]}])
    assert made[MATCHED] == [[2, 0, 0], [2, 0, 0]]


def test_tokens_balance_where_the_operator_says_so() -> None:
    requests = [{"prompt_hashes": [n], "tokens_estimate": 900 if n == 1 else 64} for n in (1, 1, 2, 2, 3, 3)]
    with PluginHarness(plugin) as harness:
        harness.configure("burst", TYPE, {"windowDurationMs": 1, "balanceBy": "tokens"})
        made = harness.produce("burst", {"a": {}, "b": {}}, requests)
    assert [row.index(1) for row in made[MATCHED]] == [0, 0, 1, 1, 1, 1]


def test_calls_of_one_window_are_placed_together_and_a_full_one_does_not_wait() -> None:
    """The window is longer than the test may take: its end is that it is full."""
    made: dict[int, list[float]] = {}
    with PluginHarness(plugin) as harness:
        harness.configure("burst", TYPE, {"windowDurationMs": 600_000, "maxBatchSize": 3})
        instance = harness._instance_of("burst").object
        waiting = Waiting((1,), 1, frozenset("ab"), {})
        start = Barrier(3)

        def call(number: int) -> None:
            start.wait()
            made[number] = instance._place([waiting])

        threads = [Thread(target=call, args=(number,), daemon=True) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert made == {0: ["a"], 1: ["a"], 2: ["a"]}


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"windowDurationMs": 0}, "windowDurationMs"),
        ({"blockSizeTokens": 0}, "blockSizeTokens"),
        ({"maxPerReplica": 0}, "maxPerReplica"),
        ({"maxBatchSize": -2}, "maxBatchSize"),
        ({"maxPrefixTokensToMatch": -1}, "maxPrefixTokensToMatch"),
        ({"minColocateBlocks": -1}, "minColocateBlocks"),
        ({"balanceBy": "bytes"}, "balanceBy"),
        ({"window": 1}, "window"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_parameters_are_refused(parameters: dict[str, object], path: str) -> None:
    with PluginHarness(plugin) as harness, pytest.raises(ParameterError) as caught:
        harness.configure("burst", TYPE, parameters)
    assert caught.value.path == path
