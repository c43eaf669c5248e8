"""The package `multimodal`: which media a request holds, and who has had them."""

from collections.abc import Iterator

import pytest
from hotbay_multimodal import plugin
from hotbay_multimodal.index import MAX_DUMPED, ItemIndex, Notes
from hotbay_multimodal.items import MAX_ITEMS, media_hashes
from hotbay_multimodal.types import ProducerParameters, share
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

PRODUCER, SCORER = "mm-embeddings-cache-producer", "mm-embeddings-cache-scorer"
MATCHED, TOTAL = "EncoderCacheMatchInfo.matched_size", "EncoderCacheMatchInfo.total_size"
PODS: dict[str, dict[str, float]] = {"a": {}, "b": {}, "c": {}}


@pytest.fixture
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        made.configure("p", PRODUCER)
        made.configure("s", SCORER)
        yield made


def images(*urls: str, name: str = "r") -> dict[str, object]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"id": name, "messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, *parts]}]}


def matched(harness: PluginHarness, *urls: str) -> list[float]:
    return harness.produce("p", PODS, [images(*urls)])[MATCHED][0]


# -- items -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "u"}},
        {"type": "image_url", "image_url": "u"},
        {"type": "input_image", "image_url": "u"},
        {"type": "image", "source": {"type": "url", "url": "u"}},
        {"type": "image", "source": {"type": "base64", "data": "u"}},
        {"type": "image", "image": "u"},
        {"type": "image_url", "image_url": {"uuid": "u"}},
    ],
)
def test_an_image_is_one_item_however_it_is_spelled(part: dict[str, object]) -> None:
    usual = media_hashes(images("u")["messages"])  # type: ignore[arg-type]  # a list of maps
    assert media_hashes([{"content": [part]}]) == usual
    assert len(usual) == 1


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "u", "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": "u"}},
        {"type": "video_url", "video_url": {"url": "u"}},
    ],
)
def test_audio_and_video_are_items_of_their_own(part: dict[str, object]) -> None:
    (found,) = media_hashes([{"content": [part]}])
    assert (found,) != media_hashes(images("u")["messages"])  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"content": None},
        {"content": "text"},
        {"content": []},
        {"content": ["image_url"]},
        {"content": [{"type": "text", "text": "image_url"}]},
        {"content": [{"type": ["image_url"]}]},
        {"content": [{"type": "image_url"}]},
        {"content": [{"type": "image_url", "image_url": {}}]},
        {"content": [{"type": "image_url", "image_url": {"url": 7}}]},
        {"content": [{"type": "image_url", "image_url": ""}]},
        "text",
        None,
        7,
    ],
)
def test_what_holds_no_media_has_no_items(message: object) -> None:
    assert media_hashes([message]) == ()


def test_an_item_that_is_there_twice_counts_once() -> None:
    found = media_hashes(images("u", "v", "u")["messages"])  # type: ignore[arg-type]  # as above
    assert len(found) == 2


@pytest.mark.parametrize(("sent", "counted"), [(MAX_ITEMS, MAX_ITEMS), (MAX_ITEMS + 1, MAX_ITEMS)])
def test_a_request_has_so_many_items_at_most(sent: int, counted: int) -> None:
    found = media_hashes(images(*map(str, range(sent)))["messages"])  # type: ignore[arg-type]  # as above
    assert len(found) == counted


values = st.recursive(
    st.none() | st.text() | st.integers() | st.sampled_from(["image_url", "url"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["type", "content", "image_url", "url"]), inner),
    max_leaves=10,
)


@given(messages=st.lists(values, max_size=4))
def test_any_messages_can_be_read(messages: list[object]) -> None:
    found = media_hashes(messages)
    assert all(0 <= item < 2**64 for item in found)
    assert len(set(found)) == len(found)


# -- producer --------------------------------------------------------------------------------------


def test_media_match_where_they_were_sent(harness: PluginHarness) -> None:
    harness.pre_request("p", PODS, ["b"], images("u", "v"))
    made = harness.produce("p", PODS, [images("u", "w"), images("v", "u"), images(), {}])
    assert made == {MATCHED: [[0, 1, 0], [0, 2, 0], [0, 0, 0], [0, 0, 0]], TOTAL: [[2], [2], [0], [0]]}


def test_encoding_servers_hold_media_too(harness: PluginHarness) -> None:
    results = {"decode": ["a", "c"], "encode": ["b"], "prefill": ["c"]}
    harness.pre_request("p", PODS, ["a", "c"], images("u"), profile="decode", results=results)
    assert matched(harness, "u") == [1, 1, 0]
    harness.configure("p", PRODUCER, {"encodeProfile": "prefill"})
    harness.pre_request("p", PODS, ["a"], images("u"), results=results)
    assert matched(harness, "u") == [1, 0, 1]


@pytest.mark.parametrize(("mib", "capacity"), [(4096, 2048), (4, 2), (3, 1), (1, 1), (0, 2048), (-1, 2048)])
def test_an_endpoint_holds_an_item_for_every_2_mib(mib: int, capacity: int) -> None:
    assert ProducerParameters(mib).capacity == capacity


def test_what_was_not_sent_lately_is_forgotten(harness: PluginHarness) -> None:
    harness.configure("p", PRODUCER, {"cacheSizeInMBPerServer": 4})
    for url in ("u", "v", "u", "w"):
        harness.pre_request("p", PODS, ["a"], images(url, name=url))
    assert [matched(harness, url)[0] for url in ("u", "v", "w")] == [1, 0, 1]


def test_an_endpoint_that_disappears_is_forgotten(harness: PluginHarness) -> None:
    harness.pre_request("p", PODS, ["a"], images("u"))
    harness.produce("p", {"b": {}}, [images("u")])
    assert matched(harness, "u") == [0, 0, 0]


def test_what_a_withdrawn_request_brought_is_not_there(harness: PluginHarness) -> None:
    harness.pre_request("p", PODS, ["a"], images("u", name="first"))
    second = images("u", "v", name="second")
    harness.pre_request("p", PODS, ["a"], second)
    harness.withdrawn("p", PODS, ["a"], second)
    assert (matched(harness, "u"), matched(harness, "v")) == ([1, 0, 0], [0, 0, 0])
    harness.withdrawn("p", PODS, ["a"], second)
    assert matched(harness, "u") == [1, 0, 0]


@pytest.mark.parametrize(("response", "held"), [({"ttft_us": 5000}, 1), ({"ttft_us": None, "cause": "error"}, 0)])
def test_what_a_request_brought_that_was_answered_stays(
    harness: PluginHarness, response: dict[str, object], held: float
) -> None:
    request = images("u")
    harness.pre_request("p", PODS, ["a"], request)
    harness.response_body("p", response, request)
    harness.withdrawn("p", PODS, ["a"], request)
    assert matched(harness, "u") == [held, 0, 0]


def test_notes_are_bounded_in_requests_and_in_items() -> None:
    notes = Notes(requests=2, items=5)
    for name in ("a", "b", "c"):
        notes.add(name, [("pod", (1,))])
    assert [notes.take(name) for name in ("a", "b", "c", "c")] == [(), [("pod", (1,))], [("pod", (1,))], ()]
    notes.add("a", [("pod", (1, 2))])
    notes.add("a", [("pod", (1, 2)), ("other", (3,))])
    notes.add("b", [("pod", (4, 5))])
    assert len(notes.take("a")) == 2
    notes.add("c", [("pod", (6, 7, 8, 9))])
    assert (notes.take("b"), len(notes.take("c"))) == ((), 1)


def test_the_state_says_who_holds_how_much(harness: PluginHarness) -> None:
    harness.pre_request("p", PODS, ["a"], images("u"))
    harness.pre_request("p", PODS, ["b"], images("u", "v"))
    shown = [{"endpoint": "b", "items": 2}, {"endpoint": "a", "items": 1}]
    assert harness.dump_state("p") == {"endpoints": shown, "total": 2}


def test_the_state_is_bounded() -> None:
    index = ItemIndex(1)
    for number in range(MAX_DUMPED + 5):
        index.learn(f"e{number}", [number])
    dumped = index.dump()
    assert dumped["total"] == MAX_DUMPED + 5
    assert isinstance(dumped["endpoints"], list)
    assert len(dumped["endpoints"]) == MAX_DUMPED


@given(
    capacity=st.integers(1, 4),
    steps=st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 6), max_size=5)), max_size=20),
)
def test_the_index_equals_a_list_of_the_latest(capacity: int, steps: list[tuple[str, list[int]]]) -> None:
    index = ItemIndex(capacity)
    latest: dict[str, list[int]] = {"a": [], "b": []}
    for endpoint, items in steps:
        index.learn(endpoint, items)
        for item in items:
            latest[endpoint] = [held for held in latest[endpoint] if held != item] + [item]
        latest[endpoint] = latest[endpoint][-capacity:]
        for name, held in latest.items():
            assert [index.matched(name, [item]) for item in range(7)] == [int(item in held) for item in range(7)]


# -- scorer ----------------------------------------------------------------------------------------


def rate(harness: PluginHarness, match: list[float], total: float | None) -> list[float]:
    data = {MATCHED: match} if total is None else {MATCHED: match, f"{TOTAL}/request": [total]}
    (scores,) = harness.score("s", {f"e{row}": {} for row in range(len(match))}, data=data)
    return list(scores.values())


@pytest.mark.parametrize(
    ("match", "total", "ratings"),
    [
        ([0, 1, 2], 2, [0, 0.5, 1]),
        ([3, -1, float("nan")], 2, [1, 0, 0]),
        ([1, 1], 0, [0, 0]),
        ([1, 1], None, [0, 0]),
    ],
)
def test_endpoints_rate_by_the_share_that_they_hold(
    harness: PluginHarness, match: list[float], total: float | None, ratings: list[float]
) -> None:
    assert rate(harness, match, total) == ratings


@given(matched_size=st.floats(allow_nan=True), total=st.floats(allow_nan=True))
def test_shares_are_within_0_and_1(matched_size: float, total: float) -> None:
    assert 0 <= share(matched_size, total) <= 1


def test_a_named_producer_is_asked_for(harness: PluginHarness) -> None:
    harness.configure("s", SCORER, {"producerName": "mine"})
    own = MATCHED.replace(".", "/mine."), TOTAL.replace(".", "/mine.")
    assert harness.facts("s").consumes == own
    assert harness.score("s", {"a": {}}, data={own[0]: [1], f"{own[1]}/request": [2]}) == [{"a": 0.5}]


@pytest.mark.parametrize(
    ("type_name", "parameters", "path"),
    [
        (PRODUCER, {"cacheSizeInMBPerServer": "4"}, "cacheSizeInMBPerServer"),
        (PRODUCER, {"cacheSize": 4}, "cacheSize"),
        (SCORER, {"producer": "p"}, "producer"),
    ],
)
def test_bad_parameters_are_refused_where_they_stand(
    harness: PluginHarness, type_name: str, parameters: dict[str, object], path: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        harness.configure("bad", type_name, parameters)
    assert refused.value.path == path
