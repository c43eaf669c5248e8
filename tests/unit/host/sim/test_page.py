"""The metrics page against a real one: families, types, order, labels and buckets of vLLM 0.32; and what its values are."""

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hotbay.datalayer.pages.engines import EngineSet
from hotbay.datalayer.pages.extraction import MetricsReader
from hotbay.datalayer.pages.text import PageText
from hotbay.sim.config import FakeMetrics, SimConfig
from hotbay.sim.engine import Engine
from hotbay.sim.page import MetricsPage, number
from hotbay.sim.sequences import EngineLimits, Work
from hotbay.sim.timing import Timing
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

DUMP = (Path(__file__).parents[3] / "data" / "metrics" / "vllm-0.32.0-metrics.txt").read_text()
UNIX_S = 1.7960727535e9
# The set-up of the server that was recorded, as far as the simulator has one.
RECORDED = EngineLimits(max_model_len=2048, block_size=32, blocks_count=65536)
OWN_LABELS = {"engine", "le", "model_name"}
CHANGING_LABELS = {"kv_cache_max_concurrency"}


def page_of(engine: Engine, config: SimConfig) -> str:
    return MetricsPage(engine, config, UNIX_S).render(UNIX_S).decode()


def recorded_engine() -> tuple[Engine, SimConfig]:
    """An engine that did what the recorded one had done: two completions of 9 and 22 tokens together."""
    config = SimConfig(model="tiny", limits=RECORDED, timing=Timing(base_s=0.004))
    engine = Engine(config.limits, config.timing, Random(1))
    engine.add(Work(4, 6, max_tokens=6), 0.0)
    engine.advance(10.0)
    engine.add(Work(5, 16, max_tokens=16), 10.0)
    engine.advance(20.0)
    return engine, config


def families(page: str) -> list[str]:
    """HELP and TYPE lines of vLLM's own families, in their order."""
    return [line for line in page.splitlines() if re.match(r"# (HELP|TYPE) vllm:", line)]


def series(page: str) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """Names and labels as they stand on the page, without values that differ between two servers."""
    for line in page.splitlines():
        found = re.match(r"(vllm:\w+)\{(.*)\} ", line)
        if found:
            labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[2])
            yield found[1], tuple((name, "" if name in CHANGING_LABELS else value) for name, value in labels)


def values(page: str) -> dict[str, str]:
    return dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))


def test_families_are_those_of_the_real_server_in_its_order():
    assert families(page_of(*recorded_engine())) == families(DUMP)


def test_series_have_the_real_servers_names_labels_and_buckets_in_its_order():
    assert list(series(page_of(*recorded_engine()))) == list(series(DUMP))


@pytest.mark.parametrize(
    "name",
    [
        "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prefix_cache_queries_total",
        "prefix_cache_hits_total", "num_preemptions_total", "prompt_tokens_total", "prompt_tokens_by_source_total",
        "prompt_tokens_cached_total", "generation_tokens_total", "request_success_total", "admission_rejections_total",
        "request_prompt_tokens_sum", "request_generation_tokens_sum", "iteration_tokens_total_count",
        "iteration_tokens_total_sum", "request_max_num_generation_tokens_sum", "request_params_n_sum",
        "request_params_max_tokens_sum", "time_to_first_token_seconds_count", "inter_token_latency_seconds_count",
        "request_time_per_output_token_seconds_count", "e2e_request_latency_seconds_count",
        "request_queue_time_seconds_count", "request_decode_time_seconds_count", "request_num_preemptions_count",
        "request_num_preemptions_bucket", "request_prefill_kv_computed_tokens_sum", "engine_sleep_state",
    ],
)  # fmt: skip
def test_same_work_counts_as_much_as_on_the_real_server(name):
    ours, theirs = (
        {key: value for key, value in values(page).items() if key.startswith(f"vllm:{name}{{")}
        for page in (page_of(*recorded_engine()), DUMP)
    )
    assert ours
    assert ours == theirs


def test_page_is_readable_by_the_prometheus_client():
    page = page_of(*recorded_engine())
    found = {sample.name for family in text_string_to_metric_families(page) for sample in family.samples}
    assert {
        "vllm:num_requests_running",
        "vllm:request_success_total",
        "vllm:e2e_request_latency_seconds_bucket",
    } <= found


def test_histogram_counts_what_came_since_the_page_before():
    config = SimConfig(timing=Timing(base_s=1.0))
    engine = Engine(config.limits, config.timing, Random(1))
    page = MetricsPage(engine, config, UNIX_S)
    counts = []
    for at in (0.0, 10.0):
        engine.add(Work(4, 2), at)
        engine.advance(at + 5)
        found = values(page.render(UNIX_S).decode())
        counts.append(found['vllm:time_to_first_token_seconds_count{engine="0",model_name="sim"}'])
    assert counts == ["1.0", "2.0"]


def test_gauges_say_who_runs_and_who_waits_and_for_what():
    config = SimConfig(limits=EngineLimits(max_num_seqs=2, max_loras=1, blocks_count=1000), timing=Timing(base_s=1.0))
    engine = Engine(config.limits, config.timing, Random(1))
    for adapter in ("a", "b", "", ""):
        engine.add(Work(160, 9, adapter=adapter), 0.0)
    engine.advance(0.0)
    found = values(page_of(engine, config))
    labels = 'engine="0",model_name="sim"'
    assert found[f"vllm:num_requests_running{{{labels}}}"] == "2.0"
    assert found[f"vllm:num_requests_waiting{{{labels}}}"] == "2.0"
    assert found[f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}}'] == "1.0"
    assert found[f'vllm:num_requests_waiting_by_reason{{{labels},reason="deferred"}}'] == "1.0"
    assert found[f"vllm:kv_cache_usage_perc{{{labels}}}"] == "0.02"


def lora_series(page: str) -> list[tuple[str, str, str, float]]:
    pattern = (
        r'vllm:lora_requests_info\{max_lora="(\d+)",running_lora_adapters="(.*?)",waiting_lora_adapters="(.*?)"\} (\S+)'
    )
    return [(*found[:3], float(found[3])) for found in re.findall(pattern, page)]


def test_adapters_are_said_from_the_first_request_on_a_series_for_each_combination():
    """The newest series is the one that holds; old ones stay, as on the real server."""
    limits = EngineLimits(max_num_seqs=2, max_loras=2, max_cpu_loras=2)
    config = SimConfig(limits=limits, timing=Timing(base_s=1.0))
    engine = Engine(config.limits, config.timing, Random(1))
    engine.add(Work(4, 1), 0.0)
    engine.advance(5.0)
    assert "lora_requests_info" not in page_of(engine, config)
    for adapter in ("b", "a", "c"):
        engine.add(Work(4, 1, adapter=adapter), 10.0)
    engine.advance(10.0)
    engine.advance(11.0)
    page = page_of(engine, config)
    assert lora_series(page) == [("2", "b,a", "c", UNIX_S + 10), ("2", "c", "", UNIX_S + 11)]
    engine.advance(20.0)
    assert max(lora_series(page_of(engine, config)), key=lambda found: found[3]) == ("2", "", "", UNIX_S + 12)
    assert page.index("request_prefill_kv_computed_tokens_created") < page.index("lora_requests_info")


def test_fake_metrics_take_the_place_of_what_is():
    fake = FakeMetrics(running_requests=10, waiting_requests=30, kv_cache_usage=0.4, loras=(("a,b", "c", 1.5e9),))
    config = SimConfig(fake_metrics=fake)
    page = page_of(Engine(config.limits, config.timing, Random(1)), config)
    found = values(page)
    labels = 'engine="0",model_name="sim"'
    assert found[f"vllm:num_requests_running{{{labels}}}"] == "10.0"
    assert found[f"vllm:num_requests_waiting{{{labels}}}"] == "30.0"
    assert found[f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}}'] == "30.0"
    assert found[f"vllm:kv_cache_usage_perc{{{labels}}}"] == "0.4"
    assert lora_series(page) == [("1", "a,b", "c", 1.5e9)]


def test_fake_metrics_leave_alone_what_they_do_not_say():
    config = SimConfig(fake_metrics=FakeMetrics(kv_cache_usage=0.0), timing=Timing(base_s=1.0))
    engine = Engine(config.limits, config.timing, Random(1))
    engine.add(Work(160, 9), 0.0)
    engine.advance(0.0)
    found = values(page_of(engine, config))
    assert found['vllm:num_requests_running{engine="0",model_name="sim"}'] == "1.0"
    assert found['vllm:kv_cache_usage_perc{engine="0",model_name="sim"}'] == "0.0"


def test_names_of_models_are_escaped():
    config = SimConfig(model='a"b\\c\nd')
    page = page_of(Engine(config.limits, config.timing, Random(1)), config)
    assert 'vllm:num_requests_running{engine="0",model_name="a\\"b\\\\c\\nd"} 0.0' in page


@given(st.one_of(st.floats(0, allow_nan=False), st.integers(0, 10**15)))
def test_numbers_are_written_as_the_prometheus_client_writes_them(value):
    assert number(value) == floatToGoString(value)


def test_host_reads_off_the_page_what_the_engine_is_at():
    limits = EngineLimits(max_num_seqs=2, max_loras=2, max_cpu_loras=2, blocks_count=1000)
    config = SimConfig(model="tiny", limits=limits, timing=Timing(base_s=1.0))
    engine = Engine(config.limits, config.timing, Random(1))
    for adapter in ("a", "b", "c"):
        engine.add(Work(160, 9, adapter=adapter), 0.0)
    engine.advance(0.0)
    page = MetricsReader(EngineSet()).read(PageText.of(page_of(engine, config).encode()), {})
    metrics = page.metrics
    assert (metrics.engine, metrics.model, page.invalid) == ("vllm", "tiny", ())
    assert (metrics.running, metrics.waiting, metrics.kv_usage) == (2.0, 1.0, 0.02)
    assert (metrics.kv_capacity_tokens, metrics.block_size, metrics.num_blocks) == (16_000, 16, 1000)
    assert metrics.max_active_models == 2.0
    assert (set(metrics.active_models), set(metrics.waiting_models)) == ({"a", "b"}, {"c"})
