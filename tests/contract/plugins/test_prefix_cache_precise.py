"""`precise-prefix-cache-producer` and `-scorer`: matches by what engines tell, and the estimate where tokens are unknown."""

from collections.abc import Iterator, Mapping, Sequence

import msgpack
import pytest
from hotbay_prefix_cache import plugin
from hotbay_prefix_cache.matcher import MAX_STRANGERS, Matcher
from hotbay_prefix_cache.precise_parameters import PreciseParameters
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness

PRODUCER, SCORER = "precise-prefix-cache-producer", "precise-prefix-cache-scorer"
MATCHED, TOTAL, BLOCK = (
    f"PrefixCacheMatchInfo.{field}" for field in ("matched_blocks", "total_blocks", "block_size_tokens")
)
PODS: Mapping[str, Mapping[str, float]] = {"default/a": {}, "default/b": {}}
SIZE = 4


@pytest.fixture
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        made.configure("producer", PRODUCER)
        yield made


class Engine:
    """What an engine publishes, given to the producer as its subscriber would."""

    def __init__(self, harness: PluginHarness, who: str = "default/a", model: str = "m", ref: str = "producer") -> None:
        self.receive = harness._instance_of(ref).object.receive
        self.topic = f"kv@{who}@{model}".encode()
        self.sequence = 0

    def say(self, *events: object, name: str = "") -> None:
        payload = msgpack.packb([1764604800.5, list(events), 0])
        self.receive(name, [self.topic, self.sequence.to_bytes(8, "big"), payload])
        self.sequence += 1

    def store(self, tokens: Sequence[int], *, size: int = SIZE, lora: str = "", salt: str = "", name: str = "") -> None:
        hashes = [hash((lora, salt, tuple(tokens[: end + size]))) & 2**63 - 1 for end in range(0, len(tokens), size)]
        adapter = [lora] if lora else []
        extras = [[*adapter, *([salt] if salt and not number else [])] or None for number in range(len(hashes))]
        event = ["BlockStored", hashes, None, list(tokens), size, None, "GPU", lora or None, extras]
        self.say(event, name=name)


def spelled(*prompts: Sequence[int]) -> str:
    return "\0".join(" ".join(map(str, prompt)) for prompt in prompts)


def ask(
    harness: PluginHarness, prompt: str, pods: Mapping[str, Mapping[str, float]] = PODS, **fields: object
) -> tuple[list[float], float, float]:
    request = {"id": "r", "prompt": prompt, "target_model": "m", **fields}
    made = harness.produce("producer", pods, [request])
    return made[MATCHED][0], made[TOTAL][0][0], made[BLOCK][0][0]


def test_token_prompts_match_what_engines_say_they_hold(harness: PluginHarness) -> None:
    Engine(harness).store(range(12))
    Engine(harness, "default/b").store(range(4))
    assert ask(harness, spelled(range(14))) == ([3, 1], 3, SIZE)
    assert ask(harness, spelled([5, *range(13)])) == ([0, 0], 3, SIZE)


def test_prompts_of_one_request_are_matched_each_from_its_beginning(harness: PluginHarness) -> None:
    Engine(harness).store([1] * 4)
    engine = Engine(harness, "default/b")
    engine.store([1] * 4)
    engine.store([2] * 4)
    assert ask(harness, spelled([1] * 4, [2] * 4)) == ([1, 2], 2, SIZE)


def test_tokens_of_a_token_producer_come_first(harness: PluginHarness) -> None:
    Engine(harness).store(range(8))
    request = {"id": "r", "prompt": "hello", "target_model": "m"}
    data = {"TokenizedPrompt.token_ids/text": [spelled(range(8))]}
    made = harness.produce("producer", PODS, [request], data=data)
    assert (made[MATCHED], made[TOTAL]) == ([[2, 0]], [[2]])


@pytest.mark.parametrize(
    ("model", "target", "lora", "count"),
    [("m", "m", "", 2), ("m", "other", "", 0), ("", "other", "", 2), ("m", "poet", "poet", 0)],
    ids=["same", "another", "an engine that does not say", "an adapter that is not in the blocks"],
)
def test_s34_blocks_of_another_model_do_not_count(
    harness: PluginHarness, model: str, target: str, lora: str, count: int
) -> None:
    Engine(harness, model=model).store(range(8))
    assert ask(harness, spelled(range(8)), target_model=target, lora=lora)[0] == [count, 0]


@pytest.mark.parametrize(
    ("lora", "salt", "count"), [("poet", "s", 2), ("poet", "", 0), ("", "s", 0), ("poets", "", 0), ("", "", 0)]
)
def test_s34_adapter_and_salt_are_part_of_a_prefix(harness: PluginHarness, lora: str, salt: str, count: int) -> None:
    Engine(harness).store(range(8), lora="poet", salt="s")
    assert ask(harness, spelled(range(8)), lora=lora, cache_salt=salt)[0] == [count, 0]


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 0), (3, 0), (4, 1), (5, 1)])
def test_s35_prompts_around_one_block_match_by_full_blocks(harness: PluginHarness, tokens: int, blocks: int) -> None:
    Engine(harness).store(range(8))
    assert ask(harness, spelled(range(tokens)))[0] == [blocks, 0]


def test_engines_of_different_block_sizes_are_told_in_the_smaller_one(harness: PluginHarness) -> None:
    Engine(harness).store(range(8), size=4)
    Engine(harness, "default/b").store(range(16), size=8)
    assert ask(harness, spelled(range(16))) == ([2, 4], 4, 4)


def test_texts_are_matched_by_the_estimate_until_the_engine_says_that_its_cache_is_empty(
    harness: PluginHarness,
) -> None:
    text = {"id": "r", "prompt": "hello", "prompt_hashes": [1, 2]}
    engine = Engine(harness)
    engine.store(range(4))
    harness.pre_request("producer", PODS, ["default/a"], text)
    assert ask(harness, "hello", prompt_hashes=[1, 2, 3]) == ([2, 0], 3, 64)
    engine.say(["AllBlocksCleared"])
    assert ask(harness, "hello", prompt_hashes=[1, 2, 3]) == ([0, 0], 3, 64)


def test_the_estimate_of_a_request_without_a_first_byte_is_withdrawn(harness: PluginHarness) -> None:
    text = {"id": "r", "prompt": "hello", "prompt_hashes": [1, 2]}
    harness.pre_request("producer", PODS, ["default/a"], text)
    harness.withdrawn("producer", PODS, ["default/a"], text)
    assert ask(harness, "hello", prompt_hashes=[1, 2])[0] == [0, 0]


@pytest.mark.parametrize("speculative", [True, False])
def test_what_was_sent_counts_before_the_engine_says_so_only_where_asked_for(speculative: bool) -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("producer", PRODUCER, {"speculativeIndexing": speculative, "speculativeTTL": "1h"})
        request = {"id": "r", "prompt": spelled(range(32)), "target_model": "m"}
        results = {"decode": ["default/b"], "prefill": ["default/a"]}
        harness.pre_request("producer", PODS, ["default/b"], request, results=results)
        assert ask(harness, spelled(range(32)))[0] == ([2, 2] if speculative else [0, 0])
        harness.withdrawn("producer", PODS, ["default/b"], request, results=results)
        assert ask(harness, spelled(range(32)))[0] == [0, 0]


class Clock:
    """What a matcher asks of requests and endpoints."""

    def __init__(self, prompt: str) -> None:
        self.id, self.prompt, self.target_model, self.lora, self.cache_salt = "r", prompt, "m", "", ""
        self.prompt_hashes = memoryview(b"").cast("Q")
        self.ids = ["default/a"]
        self.targets, self.results = ["default/a"], {"default": ["default/a"]}

    def text(self, name: str) -> str:
        return ""

    def table(self, name: str) -> tuple[Sequence[str], memoryview]:
        return (), memoryview(b"\xff" * 4).cast("I")


@pytest.mark.parametrize(("now", "count"), [(101.9, 2), (102.0, 0)])
def test_a_prediction_holds_for_its_time(now: float, count: int) -> None:
    matcher, told = Matcher(block_tokens=4, speculative_s=2.0), Clock(spelled(range(8)))
    matcher.sent(told, told, told, 100.0)
    (match,) = matcher.match([told], told, now)
    assert match.counts == ({0: count} if count else {})


def test_s21_an_endpoint_that_went_is_forgotten(harness: PluginHarness) -> None:
    Engine(harness).store(range(8))
    assert ask(harness, spelled(range(8)))[0] == [2, 0]
    ask(harness, spelled(range(8)), {"": {}, "default/b": {}})
    assert ask(harness, spelled(range(8)))[0] == [0, 0]
    assert harness.dump_state("producer")["blocks"] == 0


def test_engines_that_belong_to_no_endpoint_are_few(harness: PluginHarness) -> None:
    for number in range(2 * MAX_STRANGERS):
        Engine(harness, f"stranger-{number}").store([number] * 4)
    ask(harness, spelled(range(8)))
    assert harness.dump_state("producer")["caches"] == MAX_STRANGERS


def test_an_engine_is_known_by_the_address_of_its_endpoint() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("producer", PRODUCER, {"kvEventsConfig": {"discoverPods": False}})
        Engine(harness, "10.0.0.7:8000").store(range(8))
        pods = {"default/a": {"address": "10.0.0.6:8000"}, "default/b": {"address": "10.0.0.7:8000"}}
        assert ask(harness, spelled(range(8)), pods)[0] == [0, 2]
        moved = {"default/a": {"address": "10.0.0.7:8000"}, "default/b": {"address": "10.0.0.8:8000"}}
        assert ask(harness, spelled(range(8)), moved)[0] == [2, 0]


def test_an_engine_that_was_connected_to_is_its_endpoint_whatever_its_topic_says(harness: PluginHarness) -> None:
    Engine(harness, "").store(range(8), name="default/b")
    assert ask(harness, spelled(range(8)))[0] == [0, 2]


def test_messages_that_cannot_be_read_are_counted_and_nothing_else(harness: PluginHarness) -> None:
    engine = Engine(harness)
    engine.store(range(8))
    engine.receive("", [b"kv@default/a@m", b"\0" * 8, b"\xc1"])
    engine.receive("", [])
    assert ask(harness, spelled(range(8)))[0] == [2, 0]
    assert harness.dump_state("producer")["malformed"] == 2


def test_the_index_moves_to_the_next_version(harness: PluginHarness) -> None:
    Engine(harness).store(range(8))
    with PluginHarness(plugin) as successor:
        successor.import_state(harness.export_state())
        successor.configure("producer", PRODUCER)
        assert successor.state_of("producer") == "imported"
        assert ask(successor, spelled(range(8)))[0] == [2, 0]
        assert successor.dump_state("producer") == {
            "blocks": 2,
            "caches": 1,
            "first_caches": [{"source": "default/a", "rank": 0, "model": "m", "blocks": 2}],
            "malformed": 0,
            "ignored_blocks": 0,
            "lost": 0,
        }


def test_the_older_scorer_rates_by_the_same_knowledge() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("scorer", SCORER)
        Engine(harness, ref="scorer").store(range(4))
        requests = [{"id": "r", "prompt": spelled(range(8)), "target_model": "m"}, {"id": "q", "prompt": "hi"}]
        scores = harness.score("scorer", PODS, requests)
    assert [list(row.values()) for row in scores] == [[0.5, 0], [0, 0]]


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"speculativeTTL": "0s"}, "speculativeTTL"),
        ({"speculativeTTL": "2"}, "speculativeTTL"),
        ({"speculativeTTL": 2}, "speculativeTTL"),
        ({"kvEventsConfig": {"engineType": "sglang"}}, "kvEventsConfig.engineType"),
        ({"kvEventsConfig": {"zmqEndpoint": "5557"}}, "kvEventsConfig.zmqEndpoint"),
        (
            {"kvEventsConfig": {"podDiscoveryConfig": {"socketPort": 0}}},
            "kvEventsConfig.podDiscoveryConfig.socketPort",
        ),
        (
            {"kvEventsConfig": {"podDiscoveryConfig": {"socketPort": 65_536}}},
            "kvEventsConfig.podDiscoveryConfig.socketPort",
        ),
        ({"tokenProcessorConfig": {"blockSizeTokens": -1}}, "tokenProcessorConfig.blockSizeTokens"),
        ({"blockSize": 16}, "blockSize"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("type_name", [PRODUCER, SCORER])
def test_bad_parameters_are_refused(type_name: str, parameters: dict[str, object], path: str) -> None:
    with PluginHarness(plugin) as harness, pytest.raises(ParameterError) as caught:
        harness.configure("precise", type_name, parameters)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("text", "seconds"), [("2s", 2), ("1m30s", 90), ("500ms", 0.5), ("1.5h", 5400), ("250us", 0.00025)]
)
def test_durations_are_those_of_the_reference(text: str, seconds: float) -> None:
    assert PreciseParameters(speculativeTTL=text).speculative_s == pytest.approx(seconds)


def test_a_file_of_the_reference_is_taken() -> None:
    parameters = {
        "tokenProcessorConfig": {"blockSize": 16, "hashSeed": "42"},
        "indexerConfig": {"kvBlockIndexConfig": {"enableMetrics": True}},
        "kvEventsConfig": {"topicFilter": "kv@", "concurrency": 8, "discoverPods": True, "engineType": "vllm"},
        "speculativeIndexing": True,
    }
    with PluginHarness(plugin) as harness:
        harness.configure("producer", PRODUCER, parameters)
        assert ask(harness, spelled(range(20))) == ([0, 0], 1, 16)
