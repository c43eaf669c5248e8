"""The servers that the flags of `hotbay sim` ask for."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from hotbay.errors import InputError, Problem, printable
from hotbay.sim.config import FakeMetrics, LoraModule, SimConfig
from hotbay.sim.sequences import EngineLimits
from hotbay.sim.timing import Timing

__all__ = ["sim_configs"]

_FAKE_KEYS: Final = ("running-requests", "waiting-requests", "kv-cache-usage", "loras")


def sim_configs(given: Mapping[str, Any]) -> Sequence[SimConfig]:
    """A server for each rank of each replica, in the order of their ports."""
    base = _config(given)
    ranks, replicas = given["data_parallel_size"], given["replicas"]
    count = ranks * replicas
    return [
        replace(base, seed=base.seed + index, rank=index % ranks, pod=f"sim-{index}" if count > 1 else "")
        for index in range(count)
    ]


def _config(given: Mapping[str, Any]) -> SimConfig:
    return SimConfig(
        model=given["model"],
        served_model_names=given["served_model_name"],
        loras=tuple(_lora(text) for text in given["lora_modules"]),
        limits=EngineLimits(
            max_num_seqs=given["max_num_seqs"],
            max_num_batched_tokens=given["max_num_batched_tokens"],
            max_model_len=given["max_model_len"],
            block_size=given["block_size"],
            blocks_count=given["kv_cache_size"],
            is_caching=given["enable_kvcache"],
            max_loras=given["max_loras"],
            max_cpu_loras=given["max_loras"] if given["max_cpu_loras"] is None else given["max_cpu_loras"],
        ),
        timing=_timing(given),
        mode=given["mode"],
        seed=given["seed"],
        max_waiting=given["max_waiting_queue_length"],
        failure_rate=given["failure_injection_rate"],
        failure_types=given["failure_types"],
        fake_metrics=None if given["fake_metrics"] is None else _fake_metrics(given["fake_metrics"]),
        tells_cached_tokens=given["enable_prompt_tokens_details"],
        stream_interval=given["stream_interval"],
        speed=given["speed"],
    )


def _timing(given: Mapping[str, Any]) -> Timing:
    return Timing.from_latencies(
        inter_token_s=given["inter_token_latency"],
        factor_under_load=given["time_factor_under_load"],
        sequences=given["max_num_seqs"],
        prefill_token_s=given["prefill_time_per_token"],
        prefill_overhead_s=given["prefill_overhead"],
        first_token_s=given["time_to_first_token"],
        first_token_std_s=given["time_to_first_token_std_dev"],
        inter_token_std_s=given["inter_token_latency_std_dev"],
        adapter_load_s=given["lora_load_time"],
    )


def _lora(text: str) -> LoraModule:
    if not text.startswith("{"):
        name, equals, path = text.partition("=")
        if name and equals:
            return LoraModule(name, path)
        raise _unreadable("lora-modules", '{"name": …, "path": …} or NAME=PATH', text)
    value = _json_object("lora-modules", text)
    if not isinstance(value.get("name"), str) or not value["name"]:
        raise _unreadable("lora-modules", "an object with a name", text)
    return LoraModule(value["name"], str(value.get("path", "")))


def _fake_metrics(text: str) -> FakeMetrics:
    value = _json_object("fake-metrics", text)
    unknown = sorted(set(value) - set(_FAKE_KEYS))
    if unknown:
        raise _unreadable("fake-metrics", f"the keys {', '.join(_FAKE_KEYS)}", unknown[0])
    usage = value.get("kv-cache-usage")
    if usage is not None and (not isinstance(usage, int | float) or not 0 <= usage <= 1):
        raise _unreadable("fake-metrics", "0 to 1 as kv-cache-usage", str(usage))
    return FakeMetrics(
        running_requests=_count(value, "running-requests"),
        waiting_requests=_count(value, "waiting-requests"),
        kv_cache_usage=usage,
        loras=_fake_loras(value.get("loras", ())),
    )


def _count(value: Mapping[str, Any], key: str) -> int | None:
    found = value.get(key)
    if found is not None and (type(found) is not int or found < 0):
        raise _unreadable("fake-metrics", f"a count as {key}", str(found))
    return found


def _fake_loras(value: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str, float], ...]:
    try:
        return tuple((str(lora["running"]), str(lora["waiting"]), float(lora["timestamp"])) for lora in value)
    except (KeyError, TypeError, ValueError) as error:
        wanted = '{"running": "a,b", "waiting": "c", "timestamp": Unix seconds} as each of loras'
        raise _unreadable("fake-metrics", wanted, str(value)) from error


def _json_object(path: str, text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise _unreadable(path, "a JSON object", text) from error
    if not isinstance(value, dict):
        raise _unreadable(path, "a JSON object", text)
    return value


def _unreadable(path: str, expected: str, found: str) -> InputError:
    message = "this cannot be the set-up of a simulated server"
    return InputError([Problem("CONFIG_INVALID", message, path=path, expected=expected, found=printable(found[:80]))])
