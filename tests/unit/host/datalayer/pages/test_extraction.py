"""What pages of each engine say about an endpoint."""

import math
from contextlib import suppress
from pathlib import Path

import pytest
from hotbay.config.engine_parameters import (
    BUILT_IN_ENGINES,
    DEFAULT_LABEL_KEY,
    CustomMetric,
    EngineMapping,
    EngineParameters,
)
from hotbay.config.metric_specs import MetricSpec
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.pages.engines import ENGINES, LEGACY_ENGINE_LABEL, EngineSet
from hotbay.datalayer.pages.exposition import ExpositionError
from hotbay.datalayer.pages.extraction import EndpointMemory, MetricsPage, MetricsReader
from hotbay.datalayer.pages.readings import LARGEST
from hotbay.datalayer.pages.text import PageText
from hotbay.datalayer.store import EndpointStore
from hypothesis import given
from hypothesis import strategies as st

PAGES = Path(__file__).parents[4] / "data" / "metrics"
VLLM = (PAGES / "vllm-0.32.0-metrics.txt").read_bytes()
LLAMACPP = (PAGES / "llamacpp-metrics.txt").read_bytes()
ENGINE_LABELS = (DEFAULT_LABEL_KEY, LEGACY_ENGINE_LABEL)
READER = MetricsReader(EngineSet())


def extract(body: bytes, labels: dict[str, str]) -> MetricsPage:
    return READER.read(PageText.of(body), labels)


def extract_with(parameters: EngineParameters, body: bytes, labels: dict[str, str] | None = None) -> MetricsPage:
    return MetricsReader(EngineSet(parameters)).read(PageText.of(body), labels or {})


def test_the_page_of_a_real_vllm_gives_exactly_its_values() -> None:
    assert extract(VLLM, {}) == MetricsPage(
        "vllm",
        Metrics(
            waiting=0.0,
            running=0.0,
            kv_usage=0.0,
            kv_capacity_tokens=2_097_152,
            block_size=32,
            num_blocks=65_536,
            model="tiny",
            engine="vllm",
        ),
    )


def test_the_page_of_a_busy_vllm_gives_exactly_its_values() -> None:
    page = VLLM.replace(
        b'num_requests_waiting{engine="0",model_name="tiny"} 0.0',
        b'num_requests_waiting{engine="0",model_name="tiny"} 7.0',
    )
    page = page.replace(
        b'num_requests_running{engine="0",model_name="tiny"} 0.0',
        b'num_requests_running{engine="0",model_name="tiny"} 16.0',
    )
    page = page.replace(
        b'kv_cache_usage_perc{engine="0",model_name="tiny"} 0.0',
        b'kv_cache_usage_perc{engine="0",model_name="tiny"} 0.4219',
    )
    metrics = extract(page, {}).metrics
    assert (metrics.waiting, metrics.running, metrics.kv_usage) == (7.0, 16.0, 0.4219)


def test_the_page_of_a_real_llama_cpp_gives_exactly_its_values_and_leaves_the_rest_unknown() -> None:
    assert extract(LLAMACPP, {}) == MetricsPage("llamacpp", Metrics(waiting=0.0, running=0.0, engine="llamacpp"))


def test_llama_cpp_processing_is_running_and_deferred_is_waiting() -> None:
    page = LLAMACPP.replace(b"requests_processing 0", b"requests_processing 8")
    page = page.replace(b"requests_deferred 0", b"requests_deferred 3")
    metrics = extract(page + b"llamacpp:kv_cache_usage_ratio 0.25\n", {}).metrics
    assert (metrics.running, metrics.waiting, metrics.kv_usage) == (8.0, 3.0, 0.25)


PAGE_OF = {
    "vllm": b"vllm:num_requests_waiting 1\nvllm:num_requests_running 2\nvllm:kv_cache_usage_perc 0.5\n"
    b'vllm:cache_config_info{block_size="16",num_gpu_blocks="10"} 1\n',
    "sglang": b"sglang:num_queue_reqs 1\nsglang:num_running_reqs 2\nsglang:token_usage 0.5\n"
    b'sglang:cache_config_info{page_size="16",num_pages="10"} 1\n',
    "trtllm-serve": b"trtllm_num_requests_waiting 1\ntrtllm_num_requests_running 2\ntrtllm_kv_cache_utilization 0.5\n"
    b"trtllm_kv_cache_tokens_per_block 16\ntrtllm_kv_cache_max_blocks 10\n",
    "triton-tensorrt-llm": b'nv_inference_exec_count 9\nnv_trt_llm_request_metrics{request_type="waiting"} 1\n'
    b'nv_trt_llm_request_metrics{request_type="scheduled"} 2\nnv_trt_llm_request_metrics{request_type="max"} 64\n'
    b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"} 0.5\n'
    b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per"} 16\n'
    b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"} 10\n',
    "triton": b"nv_inference_pending_request_count 1\nnv_inference_exec_count 2\n",
    "llamacpp": b"llamacpp:requests_deferred 1\nllamacpp:requests_processing 2\n",
}


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize("labelled", [True, False])
def test_each_engine_is_read_by_its_mapping_with_a_label_or_without(engine: str, labelled: bool) -> None:
    extraction = extract(PAGE_OF[engine], {ENGINE_LABELS[0]: engine} if labelled else {})
    metrics = extraction.metrics
    assert (extraction.missing, extraction.invalid) == ((), ())
    assert (metrics.engine, metrics.waiting, metrics.running) == (engine, 1.0, 2.0)
    if ENGINES[engine].cache or ENGINES[engine].gauges:
        assert (metrics.kv_usage, metrics.block_size, metrics.num_blocks) == (0.5, 16, 10)
        assert metrics.kv_capacity_tokens == 160


@pytest.mark.parametrize(
    ("labels", "engine"),
    [
        ({}, None),
        ({ENGINE_LABELS[0]: "sglang"}, "sglang"),
        ({ENGINE_LABELS[1]: "sglang"}, "sglang"),
        ({ENGINE_LABELS[0]: "vllm", ENGINE_LABELS[1]: "sglang"}, "vllm"),
        ({ENGINE_LABELS[0]: "llama.cpp"}, "llamacpp"),
        ({ENGINE_LABELS[0]: "VLLM "}, "vllm"),
        ({ENGINE_LABELS[0]: "homemade"}, None),
    ],
)
def test_the_label_names_the_engine_and_its_older_spelling_stands_back(
    labels: dict[str, str], engine: str | None
) -> None:
    assert EngineSet().labelled(labels) == engine


def test_a_page_that_gives_no_engine_away_is_read_by_the_default_mapping() -> None:
    assert EngineSet().detected(PageText.of(b"process_open_fds 3\n")) is None
    extraction = extract(b"process_open_fds 3\n", {})
    assert extraction.missing == ("waiting", "running", "kv_usage", "cache")
    assert extraction.metrics == Metrics()


def test_a_field_is_named_with_the_metric_that_it_is_read_from() -> None:
    parameters = EngineParameters(custom=(CustomMetric("queue.depth", MetricSpec("depth", (("kind", "a"),))),))
    engines = EngineSet(parameters)
    assert engines.metric("vllm", "cache") == "cache (vllm:cache_config_info)"
    assert engines.metric("vllm", "kv_usage") == "kv_usage (vllm:kv_cache_usage_perc)"
    assert engines.metric("trtllm-serve", "block_size") == "block_size (trtllm_kv_cache_tokens_per_block)"
    assert engines.metric("vllm", "attribute queue.depth") == 'attribute queue.depth (depth{kind="a"})'
    assert engines.metric("vllm", "else") == "else"


def test_the_configuration_knows_the_built_in_engines() -> None:
    assert set(BUILT_IN_ENGINES) == set(ENGINES)


def test_m13_an_older_spelling_is_read_and_the_newer_one_wins() -> None:
    old = b"vllm:num_requests_waiting 1\nvllm:num_requests_running 2\nvllm:gpu_cache_usage_perc 0.25\n"
    assert extract(old, {}).metrics.kv_usage == 0.25
    assert extract(old + b"vllm:kv_cache_usage_perc 0.75\n", {}).metrics.kv_usage == 0.75
    neither = extract(b"vllm:num_requests_waiting 1\nvllm:num_requests_running 2\n", {})
    assert neither.missing == ("kv_usage", "cache")
    assert (neither.metrics.waiting, neither.metrics.kv_usage) == (1.0, None)


def test_ranks_of_one_server_add_up_and_usage_is_their_mean() -> None:
    page = "".join(
        f'vllm:num_requests_waiting{{engine="{rank}"}} {rank + 1}\nvllm:num_requests_running{{engine="{rank}"}} 4\n'
        f'vllm:kv_cache_usage_perc{{engine="{rank}"}} {rank / 2}\n'
        f'vllm:cache_config_info{{engine="{rank}",block_size="16",num_gpu_blocks="100"}} 1\n'
        for rank in range(2)
    )
    metrics = extract(page.encode(), {}).metrics
    assert (metrics.waiting, metrics.running, metrics.kv_usage) == (3.0, 8.0, 0.25)
    assert (metrics.block_size, metrics.num_blocks, metrics.kv_capacity_tokens) == (16, 200, 3200)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e300"])
def test_a_value_that_cannot_be_true_is_left_out_and_named(value: str) -> None:
    extraction = extract(f"llamacpp:requests_deferred {value}\nllamacpp:requests_processing 2\n".encode(), {})
    assert (extraction.invalid, extraction.missing) == (("waiting",), ())
    assert (extraction.metrics.waiting, extraction.metrics.running) == (None, 2.0)


def test_of_several_lora_series_the_newest_is_true() -> None:
    lora = (
        b'vllm:lora_requests_info{max_lora="2",running_lora_adapters="l1",waiting_lora_adapters="l3"} 100\n'
        b'vllm:lora_requests_info{max_lora="4",running_lora_adapters="l2,l1",waiting_lora_adapters=""} 200.5\n'
        b'vllm:lora_requests_info{max_lora="8",running_lora_adapters="l9",waiting_lora_adapters=""} NaN\n'
    )
    metrics = extract(VLLM + lora, {}).metrics
    assert metrics.max_active_models == 4.0
    assert (metrics.active_models, metrics.waiting_models) == ({"l1": 0, "l2": 0}, {})


@pytest.mark.parametrize("value", ["+Inf", "-Inf", "NaN", "1e300", "-1", str(LARGEST * 2)])
def test_a_lora_series_whose_value_is_no_time_is_not_the_newest(value: str) -> None:
    series = b'vllm:lora_requests_info{max_lora="4",running_lora_adapters="%s",waiting_lora_adapters=""} %s\n'
    odd = series % (b"odd", value.encode())
    metrics = extract(VLLM + odd + series % (b"true", b"1.7e9"), {}).metrics
    assert metrics.active_models == {"true": 0}
    alone = extract(VLLM + odd, {})
    assert (alone.metrics.active_models, alone.metrics.max_active_models) == (None, None)
    assert alone.invalid == ("lora",)
    latest = extract(VLLM + series % (b"last", str(LARGEST).encode()) + series % (b"true", b"1.7e9"), {}).metrics
    assert latest.active_models == {"last": 0}


def test_a_page_without_lora_says_nothing_of_it_and_is_complete() -> None:
    extraction = extract(VLLM, {})
    assert extraction.metrics.active_models is None
    assert extraction.missing == ()


@pytest.mark.parametrize("text", ["None", "", "-1", "1.5", "٣", "9" * 16])
def test_cache_labels_that_are_no_count_are_unknown(text: str) -> None:
    page = f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{text}"}} 1\n'
    metrics = extract(page.encode(), {}).metrics
    assert (metrics.block_size, metrics.num_blocks, metrics.kv_capacity_tokens) == (16, None, None)


def test_a_capacity_beyond_any_cache_is_unknown() -> None:
    page = b'vllm:cache_config_info{block_size="999999999999",num_gpu_blocks="999999999999"} 1\n'
    assert extract(page, {}).metrics.kv_capacity_tokens is None


MINE = EngineMapping(
    "mine",
    queued=MetricSpec("mine_requests", (("state", "queued"),)),
    running=MetricSpec("mine_requests", (("state", "running"),)),
    kv_usage=MetricSpec("mine_cache"),
    cache_info=MetricSpec("mine_info"),
    block_size_label="tokens",
    num_blocks_label="blocks",
    lora=MetricSpec("mine_lora"),
)
MINE_PAGE = (
    b'mine_requests{state="queued"} 3\nmine_requests{state="running"} 4\nmine_cache 0.5\n'
    b'mine_info{tokens="16",blocks="10"} 1\n'
    b'mine_lora{running_lora_adapters="a",waiting_lora_adapters="b",max_lora="4"} 7\n'
)


@pytest.mark.parametrize("label", ENGINE_LABELS)
def test_an_engine_of_the_operators_own_is_read_by_its_mapping(label: str) -> None:
    page = extract_with(EngineParameters(engines=(MINE,)), MINE_PAGE, {label: "Mine"})
    metrics = page.metrics
    assert (page.missing, page.invalid, metrics.engine) == ((), (), "mine")
    assert (metrics.waiting, metrics.running, metrics.kv_usage) == (3.0, 4.0, 0.5)
    assert (metrics.block_size, metrics.num_blocks, metrics.kv_capacity_tokens) == (16, 10, 160)
    assert (metrics.active_models, metrics.waiting_models, metrics.max_active_models) == ({"a": 0}, {"b": 0}, 4.0)


def test_the_label_may_have_another_key() -> None:
    parameters = EngineParameters(label_key="engine", engines=(MINE,))
    assert extract_with(parameters, MINE_PAGE, {"engine": "mine"}).engine == "mine"
    assert extract_with(parameters, MINE_PAGE, {DEFAULT_LABEL_KEY: "mine"}).engine == "vllm"
    assert extract_with(parameters, MINE_PAGE, {LEGACY_ENGINE_LABEL: "mine"}).engine == "mine"


def test_a_configured_default_is_taken_before_a_guess_and_after_a_label() -> None:
    parameters = EngineParameters(default_engine="mine", engines=(MINE,))
    assert extract_with(parameters, VLLM).engine == "mine"
    assert extract_with(parameters, VLLM, {DEFAULT_LABEL_KEY: "vllm"}).engine == "vllm"
    assert extract_with(parameters, VLLM, {DEFAULT_LABEL_KEY: "unknown"}).engine == "mine"


def test_an_entry_replaces_the_built_in_engine_of_its_name_as_a_whole() -> None:
    mapping = EngineMapping("vllm", queued=MetricSpec("vllm:num_requests_waiting"))
    page = extract_with(EngineParameters(engines=(mapping,)), VLLM)
    assert page.engine == "vllm"
    assert page.missing == ()
    assert page.metrics == Metrics(waiting=0.0, engine="vllm")


def test_what_is_missing_is_named_all_at_once_and_what_is_there_is_read() -> None:
    page = extract(b"vllm:num_requests_running 2\n", {})
    assert page.missing == ("waiting", "kv_usage", "cache")
    assert page.metrics.running == 2.0


def test_custom_metrics_are_sums_over_the_series_that_are_meant() -> None:
    parameters = EngineParameters(
        custom=(CustomMetric("errors", MetricSpec("vllm:num_requests_waiting_by_reason")),),
        engines=(
            EngineMapping(
                "mine", custom=(CustomMetric("queued", MetricSpec("mine_requests", (("state", "queued"),))),)
            ),
        ),
    )  # fmt: skip
    body = (
        b'vllm:num_requests_waiting_by_reason{reason="a"} 1.5\nvllm:num_requests_waiting_by_reason{reason="b"} 2\n'
        + MINE_PAGE
    )
    assert extract_with(parameters, body).attributes == {"errors": 3.5}
    own = extract_with(parameters, body, {DEFAULT_LABEL_KEY: "mine"})
    assert own.attributes == {"errors": 3.5, "queued": 3.0}
    lacking = extract_with(parameters, b"vllm:num_requests_waiting_by_reason NaN\n", {DEFAULT_LABEL_KEY: "mine"})
    assert (dict(lacking.attributes), lacking.missing, lacking.invalid) == (
        {},
        ("attribute queued",),
        ("attribute errors",),
    )


def test_families_that_others_want_are_read_in_the_same_pass() -> None:
    page = MetricsReader(EngineSet(), ["process_open_fds", "nothing"]).read(PageText.of(VLLM), {})
    assert {name: [s.value for s in series] for name, series in page.samples.items()} == {"process_open_fds": [34.0]}
    assert page.metrics.engine == "vllm"


def test_a_page_that_says_the_same_gives_the_very_same_result() -> None:
    memory = EndpointMemory()
    first = READER.read(PageText.of(VLLM), {}, memory=memory)
    other = VLLM.replace(b"process_open_fds 34.0", b"process_open_fds 3400000.0")
    assert READER.read(PageText.of(other), {}, memory=memory) is first
    changed = VLLM.replace(b'running{engine="0",model_name="tiny"} 0.0', b'running{engine="0",model_name="tiny"} 9.0')
    assert READER.read(PageText.of(changed), {}, memory=memory).metrics.running == 9.0


def test_an_endpoint_that_changes_its_engine_is_read_by_the_new_one() -> None:
    memory = EndpointMemory()
    assert READER.read(PageText.of(VLLM), {}, memory=memory).engine == "vllm"
    assert READER.read(PageText.of(LLAMACPP), {DEFAULT_LABEL_KEY: "llamacpp"}, memory=memory).engine == "llamacpp"
    assert READER.read(PageText.of(VLLM), {}, memory=memory).engine == "vllm"
    # Without a label it shows with the first page that has nothing of the old one.
    READER.read(PageText.of(LLAMACPP), {}, memory=memory)
    assert READER.read(PageText.of(LLAMACPP), {}, memory=memory).engine == "llamacpp"


values = st.sampled_from(["0", "-1", "NaN", "+Inf", "1e308", "9e15", "0.5", "x", "", "1e400"])
texts = st.sampled_from(["None", "", "16", "9" * 15, "a,b,,", "-3"])
families = st.sampled_from(
    [f"vllm:{name}" for name in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc")]
    + ["vllm:cache_config_info", "vllm:lora_requests_info"]
)
labels = st.dictionaries(
    st.sampled_from(["block_size", "num_gpu_blocks", "max_lora", "running_lora_adapters", "engine"]), texts
)


@given(st.lists(st.tuples(families, labels, values), min_size=1))
def test_whatever_a_page_reports_can_be_stored(lines: list[tuple[str, dict[str, str], str]]) -> None:
    page = "".join(
        f"{family}{{{','.join(f'{k}={chr(34)}{v}{chr(34)}' for k, v in pairs.items())}}} {value}\n"
        for family, pairs, value in lines
    )
    store = EndpointStore()
    store.upsert(EndpointMetadata("default/a", "a", "10.0.0.1", 8000))
    store.update_metrics("default/a", extract(page.encode(), {}).metrics, 1.0)
    usage = store.publish(1.0).columns["endpoint.kv_usage"][0]
    assert math.isnan(usage) or 0 <= usage <= 1


@given(st.binary())
def test_no_bytes_raise_anything_but_an_exposition_error(body: bytes) -> None:
    with suppress(ExpositionError):
        extract(body, {})
