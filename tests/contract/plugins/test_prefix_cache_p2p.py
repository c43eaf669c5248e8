"""`p2p-source-producer`: names who holds most of the prompt, where that is not who computes it."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hotbay_prefix_cache import plugin
from hotbay_prefix_cache.p2p import HEADER, drawn
from hotbay_sdk import Edits, ParameterError
from hotbay_sdk.testing import PluginHarness

TYPE = "p2p-source-producer"
MATCHED, BLOCK = "PrefixCacheMatchInfo.matched_blocks", "PrefixCacheMatchInfo.block_size_tokens"


def source(
    matched: Sequence[float],
    target: str = "a",
    *,
    waiting: Sequence[float] = (0, 0, 0),
    results: Mapping[str, Sequence[str] | None] | None = None,
    without_address: str = "",
    **parameters: object,
) -> str | None:
    pods = {
        name: {"waiting": count, **({} if name == without_address else {"address": f"10.0.0.{number}:8000"})}
        for number, (name, count) in enumerate(zip("abc", waiting, strict=True))
    }
    data = {MATCHED: list(matched), f"{BLOCK}/request": [64]}
    with PluginHarness(plugin) as harness:
        harness.configure("p2p", TYPE, parameters)
        assert harness.facts("p2p").request_headers == (HEADER,)
        edits = harness.pre_request("p2p", pods, [target], {"id": "r"}, results=results, data=data)
    assert isinstance(edits, Edits)
    assert set(edits.request) == {HEADER}
    return edits.request[HEADER]


@pytest.mark.parametrize(
    ("matched", "named"),
    [
        ([1, 5, 2], "10.0.0.1:8000"),
        ([5, 5, 2], None),
        ([9, 5, 2], None),
        ([0, 0, 0], None),
        ([0, 0, 1], "10.0.0.2:8000"),
    ],
    ids=["another holds more", "as much", "less", "nobody", "one block"],
)
def test_the_header_names_who_holds_more_and_is_removed_otherwise(matched: list[float], named: str | None) -> None:
    assert source(matched) == named


@pytest.mark.parametrize(("least", "named"), [(128, "10.0.0.1:8000"), (129, None)])
def test_little_more_is_not_worth_it(least: int, named: str | None) -> None:
    assert source([1, 3, 0], minCachedTokenDelta=least) == named


def test_the_endpoint_of_the_prefill_profile_computes_where_there_is_one() -> None:
    results = {"decode": ["a"], "prefill": ["b"], "other": ["c"]}
    assert source([0, 5, 1], results=results) is None
    assert source([0, 5, 1], results=results, prefillProfileName="other") == "10.0.0.1:8000"
    assert source([0, 5, 1], results={"decode": ["a"], "prefill": None}) == "10.0.0.1:8000"


def test_nobody_is_named_without_an_address_or_for_an_unknown_target() -> None:
    assert source([0, 5, 1], without_address="b") == "10.0.0.2:8000"
    assert source([0, 5, 1], target="gone") is None


def test_equal_holders_are_drawn_by_their_queues_and_always_the_same_for_a_request() -> None:
    names = Counter(drawn(str(number), {0: 0, 3: 1, 5: 2}) for number in range(6000))
    # 1 : 1/2 : 1/3 of 11/6.
    assert [names[row] for row in (0, 3, 5)] == pytest.approx([3273, 1636, 1091], rel=0.1)
    assert len({drawn("r", {0: 0, 3: 1}) for _ in range(9)}) == 1
    assert source([0, 5, 5], waiting=[0, 10**9, 0]) == "10.0.0.2:8000"


@pytest.mark.parametrize(
    ("parameters", "path"), [({"minCachedTokenDelta": 0}, "minCachedTokenDelta"), ({"delta": 1}, "delta")]
)
def test_bad_parameters_are_refused(parameters: dict[str, object], path: str) -> None:
    with PluginHarness(plugin) as harness, pytest.raises(ParameterError) as caught:
        harness.configure("p2p", TYPE, parameters)
    assert caught.value.path == path
