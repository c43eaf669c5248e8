"""The package `labels`, `context-length-aware`: ranges of labels against lengths of requests."""

from collections.abc import Iterator, Sequence

import pytest
from hotbay_labels import plugin
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

TYPE = "context-length-aware"
LABEL = "llm-d.ai/context-length-range"
BAD = ["", "2048", "a-b", "5-1", "-1-5", "1-2-3", "1.5-2", "0x1-5", "9999999999999999999-99999999999999999999", "²-³"]

bounds = st.integers(0, 200_000) | st.just(2**63 - 1)
ranges = st.tuples(bounds, bounds).map(lambda pair: f"{min(pair)}-{max(pair)}")
texts = ranges | st.none() | st.sampled_from(BAD)
lengths = st.integers(0, 300_000)


@pytest.fixture(scope="module")
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        made.configure("rates", TYPE)
        made.configure("filters", TYPE, {"enableFiltering": True})
        yield made


def rows(texts: Sequence[str | None], label: str = LABEL) -> dict[str, dict[str, dict[str, str]]]:
    return {f"e{row}": {"labels": {} if text is None else {label: text}} for row, text in enumerate(texts)}


def rated(harness: PluginHarness, texts: Sequence[str | None], *lengths: int, ref: str = "rates") -> list[list[float]]:
    found = harness.score(ref, rows(texts), [{"tokens_estimate": length} for length in lengths], raw=True)
    return [list(scores.values()) for scores in found]


def kept(harness: PluginHarness, texts: Sequence[str | None], *lengths: int, ref: str = "filters") -> list[list[int]]:
    found = harness.keep(ref, rows(texts), [{"tokens_estimate": length} for length in lengths])
    return [[int(name[1:]) for name in ids] for ids in found]


def plain(text: str | None, length: int) -> float:
    """0.3 + 0.7 x (0.7 / (1 + width / 10000) + 0.3 x headroom / width) inside, 0.3 / (1 + distance / 1000) outside."""
    if text is None:
        return 0.5
    if text in BAD:
        return 0.0
    lowest, highest = map(int, text.split("-"))
    if lowest <= length <= highest:
        width = highest - lowest
        if width == 0:
            return 1.0
        return 0.3 + 0.7 * (0.7 / (1 + width / 10000) + 0.3 * (highest - length) / width)
    distance = length - highest if length > highest else lowest - length
    return 0.3 / (1 + distance / 1000)


@pytest.mark.parametrize(
    ("text", "length", "rating"),
    [
        ("0-10000", 0, 0.3 + 0.7 * (0.35 + 0.3)),
        ("0-10000", 5000, 0.3 + 0.7 * (0.35 + 0.15)),
        ("0-10000", 10000, 0.3 + 0.7 * 0.35),
        ("0-10000", 10001, 0.3 / 1.001),
        ("0-10000", 11000, 0.15),
        ("2000-4000", 1000, 0.15),
        ("2000-4000", 1999, 0.3 / 1.001),
        ("2000-4000", 2000, 0.3 + 0.7 * (0.7 / 1.2 + 0.3)),
        ("7-7", 7, 1),
        ("7-7", 8, 0.3 / 1.001),
        (" 0 - 10000 ", 5000, 0.3 + 0.7 * (0.35 + 0.15)),
        (None, 5, 0.5),
        ("nonsense", 5, 0),
    ],
)
def test_a_range_rates_by_its_width_and_its_headroom(
    harness: PluginHarness, text: str | None, length: int, rating: float
) -> None:
    assert rated(harness, [text], length) == [[pytest.approx(rating)]]


@given(given_texts=st.lists(texts, min_size=1, max_size=8), given_lengths=st.lists(lengths, min_size=1, max_size=3))
def test_s18_ratings_are_those_of_the_plain_formula(
    harness: PluginHarness, given_texts: list[str | None], given_lengths: list[int]
) -> None:
    found = rated(harness, given_texts, *given_lengths)
    for length, ratings in zip(given_lengths, found, strict=True):
        assert ratings == pytest.approx([plain(text, length) for text in given_texts], abs=1e-6)
        assert all(0 <= rating <= 1 for rating in ratings)


@given(text=ranges, length=lengths)
def test_inside_always_rates_above_outside(harness: PluginHarness, text: str, length: int) -> None:
    lowest, highest = map(int, text.split("-"))
    (ratings,) = rated(harness, [text], length)
    assert (ratings[0] > 0.3) is (lowest <= length <= highest)


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_range_rates_0_is_dropped_and_told_once(
    harness: PluginHarness, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.configure("fresh", TYPE, {"enableFiltering": True})
    assert rated(harness, [text, None], 5, 6, ref="fresh") == [[0, 0.5], [0, 0.5]]
    assert kept(harness, [None, text], 5, ref="fresh") == [[0]]
    assert capsys.readouterr().err.count("expected MIN-MAX") == 1


def test_labels_do_not_fill_the_log(harness: PluginHarness, capsys: pytest.CaptureFixture[str]) -> None:
    harness.configure("fresh", TYPE)
    rated(harness, [f"bad{number}" for number in range(100)], 5, ref="fresh")
    assert capsys.readouterr().err.count("expected MIN-MAX") == 16


@given(given_texts=st.lists(texts, min_size=1, max_size=8), length=lengths)
def test_filtering_keeps_ranges_that_have_the_length_and_those_without_a_label(
    harness: PluginHarness, given_texts: list[str | None], length: int
) -> None:
    expected = [row for row, text in enumerate(given_texts) if text is None or plain(text, length) > 0.3]
    assert kept(harness, given_texts, length) == [expected]


def test_a_range_has_both_of_its_bounds(harness: PluginHarness) -> None:
    assert kept(harness, ["10-20"], 9, 10, 20, 21) == [[], [0], [0], []]


def test_without_filtering_everybody_is_kept(harness: PluginHarness) -> None:
    assert kept(harness, ["10-20", "bad", None], 5, ref="rates") == [[0, 1, 2]]


def test_only_candidates_are_kept(harness: PluginHarness) -> None:
    endpoints = rows(["0-10", "0-10", "20-30"])
    assert harness.keep("filters", endpoints, [{"tokens_estimate": 5}], candidates=["e1", "e2"]) == [["e1"]]
    assert harness.keep("filters", {}, [{"tokens_estimate": 5}]) == []
    assert harness.score("rates", {}, [{"tokens_estimate": 5}]) == []


def test_the_label_is_the_configured_one(harness: PluginHarness) -> None:
    harness.configure("other", TYPE, {"label": "example.com/range"})
    (scores,) = harness.score(
        "other", rows(["7-7"], "example.com/range") | {"x": {"labels": {LABEL: "7-7"}}}, [{"tokens_estimate": 7}]
    )
    assert list(scores.values()) == [1, 0.5]


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"label": ""}, "label"),
        ({"label": 1}, "label"),
        ({"enableFiltering": "true"}, "enableFiltering"),
        ({"mode": "filter"}, "mode"),
    ],
)
def test_parameters_are_read_strictly(harness: PluginHarness, parameters: dict[str, object], path: str) -> None:
    with pytest.raises(ParameterError) as caught:
        harness.configure("x", TYPE, parameters)
    assert caught.value.path == path
