"""What the flags of `hotbay sim` come to, and what is said of those that cannot be."""

from typing import Any

import click
import pytest
from click.testing import CliRunner
from hotbay.cli.main import commands
from hotbay.cli.sim import sim
from hotbay.cli.sim_configs import sim_configs
from hotbay.errors import InputError
from hotbay.sim.config import FakeMetrics, LoraModule, SimConfig
from hotbay.sim.timing import Timing


def given(*words: str) -> dict[str, Any]:
    return sim.make_context("sim", list(words), resilient_parsing=False).params


def config(*words: str) -> SimConfig:
    (found,) = sim_configs(given(*words))
    return found


def test_without_flags_it_is_the_default_server():
    assert config() == SimConfig()


def test_flags_reach_their_fields():
    found = config(
        "--model=m", "--served-model-name=a", "--served-model-name=b", "--max-num-seqs=11", "--max-loras=2",
        "--max-cpu-loras=3", "--max-model-len=512", "--max-num-batched-tokens=64", "--kv-cache-size=99", "--block-size=8",
        "--no-enable-kvcache", "--max-waiting-queue-length=5", "--mode=echo", "--seed=4", "--failure-injection-rate=10",
        "--failure-types=rate_limit", "--failure-types=server_error", "--enable-prompt-tokens-details",
        "--stream-interval=3", "--speed=2",
    )  # fmt: skip
    assert found.names == ("a", "b")
    limits = found.limits
    assert (limits.max_num_seqs, limits.max_loras, limits.max_cpu_loras) == (11, 2, 3)
    assert (limits.max_model_len, limits.max_num_batched_tokens) == (512, 64)
    assert (limits.blocks_count, limits.block_size, limits.is_caching) == (99, 8, False)
    assert (found.max_waiting, found.mode, found.seed, found.failure_rate) == (5, "echo", 4, 10.0)
    assert found.failure_types == ("rate_limit", "server_error")
    assert (found.tells_cached_tokens, found.stream_interval, found.speed) == (True, 3, 2.0)


def test_latencies_are_durations_or_milliseconds():
    timing = config(
        "--max-num-seqs=11", "--inter-token-latency=20", "--inter-token-latency-std-dev=2ms", "--time-factor-under-load=2",
        "--prefill-time-per-token=35.5us", "--prefill-overhead=1.5ms", "--lora-load-time=1s",
    ).timing  # fmt: skip
    assert timing.one_sequence_s == pytest.approx(0.020)
    assert timing.factor_under_load(11) == pytest.approx(2.0)
    assert (timing.step_std_s, timing.adapter_load_s) == pytest.approx((0.002, 1.0))
    assert (timing.prefill_token_s, timing.prefill_overhead_s) == pytest.approx((35.5e-6, 1.5e-3))
    timing = config("--time-to-first-token=1m", "--time-to-first-token-std-dev=3s").timing
    assert timing == Timing(first_token_s=60.0, first_token_std_s=3.0)


def test_adapters_in_memory_are_as_many_as_in_a_batch_where_nobody_says():
    assert config("--max-loras=4").limits.max_cpu_loras == 4


def test_adapters_are_named_in_both_ways_of_vllm():
    found = config("--lora-modules", '{"name": "a", "path": "/a", "base_model_name": "m"}', "--lora-modules", "b=/b")
    assert found.loras == (LoraModule("a", "/a"), LoraModule("b", "/b"))


def test_fake_metrics_are_read():
    text = '{"running-requests": 1, "kv-cache-usage": 0.5, "loras": [{"running": "a", "waiting": "", "timestamp": 9}]}'
    assert config("--fake-metrics", text).fake_metrics == FakeMetrics(1, None, 0.5, (("a", "", 9.0),))


def test_ranks_and_replicas_are_servers_of_their_own():
    found = sim_configs(given("--data-parallel-size=2", "--replicas=2", "--seed=7"))
    assert [(each.rank, each.seed, each.pod) for each in found] == [
        (0, 7, "sim-0"),
        (1, 8, "sim-1"),
        (0, 9, "sim-2"),
        (1, 10, "sim-3"),
    ]


@pytest.mark.parametrize("text", ["", "x", "-1ms", "5h", "1e400s", "nan", "1 ms"])
def test_duration_that_is_none_is_refused(text):
    with pytest.raises(click.BadParameter, match="expected a duration such as"):
        given("--prefill-overhead", text)


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("--lora-modules", "a"), "lora-modules"),
        (("--lora-modules", "{"), "lora-modules"),
        (("--lora-modules", '{"path": "/a"}'), "lora-modules"),
        (("--fake-metrics", "[]"), "fake-metrics"),
        (("--fake-metrics", '{"running": 1}'), "fake-metrics"),
        (("--fake-metrics", '{"running-requests": "many"}'), "fake-metrics"),
        (("--fake-metrics", '{"kv-cache-usage": 1.5}'), "fake-metrics"),
        (("--fake-metrics", '{"loras": [{"running": "a"}]}'), "fake-metrics"),
        (("--time-factor-under-load=0.5",), "time-factor-under-load"),
        (("--max-model-len=100000",), "max-model-len"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_flags_that_cannot_be_are_refused_by_their_names(words, path):
    with pytest.raises(InputError) as caught:
        sim_configs(given(*words))
    assert [problem.path for problem in caught.value.problems] == [path]


@pytest.mark.parametrize("words", [(), ("--endpoint=http://127.0.0.1:1", "--llama=tiny")], ids=["neither", "both"])
def test_fit_takes_either_a_server_or_llama(words):
    result = CliRunner().invoke(commands, ["sim", "fit", *words])
    assert (result.exit_code, "give either --endpoint or --llama" in result.output) == (2, True)
