"""What a simulated server can be set up as, and which of its requests fail."""

from random import Random

import pytest
from hotbay.errors import InputError
from hotbay.sim.config import LoraModule, SimConfig
from hotbay.sim.failures import FAILURE_TYPES, injected
from hotbay.sim.sequences import EngineLimits


def problems(**values: object) -> list[str]:
    try:
        SimConfig(**values)
    except InputError as error:
        return [problem.path for problem in error.problems]
    return []


def test_everything_has_a_default():
    assert SimConfig().names == ("sim",)


@pytest.mark.parametrize(
    ("sizes", "path"),
    [
        ({"max_num_seqs": 0}, "max-num-seqs"),
        ({"max_num_batched_tokens": 0}, "max-num-batched-tokens"),
        ({"max_model_len": 1}, "max-model-len"),
        ({"block_size": 0}, "block-size"),
        ({"blocks_count": 0}, "kv-cache-size"),
        ({"max_loras": 0, "max_cpu_loras": 0}, "max-loras"),
        ({"max_loras": 3, "max_cpu_loras": 2}, "max-cpu-loras"),
        ({"max_model_len": 161, "blocks_count": 10}, "max-model-len"),
    ],
    ids=str,
)
def test_sizes_below_the_least_are_refused(sizes, path):
    assert problems(limits=EngineLimits(**sizes)) == [path]


@pytest.mark.parametrize(
    "sizes",
    [
        {"max_num_seqs": 1, "max_num_batched_tokens": 1, "max_model_len": 2, "block_size": 1, "blocks_count": 2},
        {"max_loras": 3, "max_cpu_loras": 3},
        {"max_model_len": 160, "blocks_count": 10},
    ],
    ids=str,
)
def test_least_sizes_are_taken(sizes):
    assert problems(limits=EngineLimits(**sizes)) == []


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"max_waiting": -1}, "max-waiting-queue-length"),
        ({"failure_rate": -0.1}, "failure-injection-rate"),
        ({"failure_rate": 100.1}, "failure-injection-rate"),
        ({"failure_types": ("fire",)}, "failure-types"),
        ({"stream_interval": 0}, "stream-interval"),
        ({"speed": 0.0}, "speed"),
        ({"speed": float("inf")}, "speed"),
        ({"rank": -1}, "rank"),
        ({"mode": "think"}, "mode"),
        ({"model": ""}, "model"),
        ({"model": "a", "loras": (LoraModule("a"),)}, "lora-modules"),
        ({"loras": (LoraModule("l"), LoraModule("l"))}, "lora-modules"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(values, path):
    assert problems(**values) == [path]


@pytest.mark.parametrize(
    "values",
    [
        {"max_waiting": 0, "failure_rate": 0.0, "stream_interval": 1, "speed": 0.001, "rank": 0},
        {"failure_rate": 100.0, "failure_types": FAILURE_TYPES},
    ],
    ids=str,
)
def test_what_can_be_is_taken(values):
    assert problems(**values) == []


def test_all_that_is_wrong_is_said_at_once():
    assert problems(mode="think", speed=0.0, limits=EngineLimits(block_size=0)) == ["block-size", "mode", "speed"]


# -- failures --------------------------------------------------------------------------------------


def test_no_request_fails_at_rate_0_and_every_one_at_100():
    random = Random(1)
    assert not any(injected("m", 0.0, (), random) for _ in range(200))
    assert all(injected("m", 100.0, (), random) for _ in range(200))


def test_requests_fail_as_often_as_they_should():
    random = Random(1)
    assert 250 < sum(injected("m", 30.0, (), random) is not None for _ in range(1000)) < 350


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("rate_limit", 429),
        ("invalid_api_key", 401),
        ("context_length", 400),
        ("server_error", 503),
        ("invalid_request", 400),
        ("model_not_found", 404),
    ],
)
def test_failures_are_of_the_kinds_asked_for(name, status):
    assert injected("m", 100.0, (name,), Random(1)).status == status


def test_failures_are_of_all_kinds_where_none_is_named():
    random = Random(1)
    assert {injected("m", 100.0, (), random).status for _ in range(200)} == {400, 401, 404, 429, 503}
