"""The metrics page of a simulated server: vLLM 0.32's, family by family in its order. Pure.

Left out is what a simulator does not have: the process, the interpreter and the web framework. A value is what the engine
counted, 0 where it never counts. A page is made some twenty times a second for each server, so a histogram's lines are
kept until it takes another observation.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from hotbay.sim.config import SimConfig
from hotbay.sim.engine import Engine
from hotbay.sim.families import CACHE_LABELS, HELP
from hotbay.sim.statistics import Tally

__all__ = ["CONTENT_TYPE", "MetricsPage", "number"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_LabelSets = Iterable[tuple[Mapping[str, str], float]]


def number(value: float) -> str:
    """A value as the Prometheus client for Python writes it: large ones with an exponent."""
    text = repr(float(value))
    if text == "inf":
        return "+Inf"
    whole, dot, rest = text.partition(".")
    if value > 0 and dot and len(whole) > 6 and "e" not in rest:
        digits = f"{whole[0]}.{whole[1:]}{rest}".rstrip("0").rstrip(".")
        return f"{digits}e+{len(whole) - 1:02}"
    return text


class MetricsPage:
    """The page of one engine. `created` is the Unix time that all counters begin at."""

    def __init__(self, engine: Engine, config: SimConfig, created: float) -> None:
        self._engine = engine
        self._config = config
        self._created = number(created)
        self._labels = {"engine": str(config.rank), "model_name": config.names[0]}
        self._kept: dict[str, tuple[int, str]] = {}

    def render(self, unix_of: float) -> bytes:
        """The page now; `unix_of` is what to add to a time of the engine to have Unix time."""
        return "".join(self._families(unix_of)).encode()

    def _families(self, unix_of: float) -> Iterator[str]:
        engine, statistics, config = self._engine, self._engine.statistics, self._config
        fake = config.fake_metrics
        for name in ("estimated_flops_per_gpu", "estimated_read_bytes_per_gpu", "estimated_write_bytes_per_gpu"):
            yield self._counter(name, 0)
        running, waiting, usage = len(engine.running), len(engine.waiting), engine.kv_usage
        deferred = engine.deferred_count if waiting else 0
        if fake is not None:
            running = running if fake.running_requests is None else fake.running_requests
            waiting, deferred = (waiting, deferred) if fake.waiting_requests is None else (fake.waiting_requests, 0)
            usage = usage if fake.kv_cache_usage is None else fake.kv_cache_usage
        yield self._gauge("num_requests_running", running)
        yield self._gauge("num_requests_waiting", waiting)
        yield self._gauges(
            "num_requests_waiting_by_reason", "reason", {"capacity": waiting - deferred, "deferred": deferred}
        )
        yield self._gauges("engine_sleep_state", "sleep_state", {"awake": 1, "weights_offloaded": 0, "discard_all": 0})
        yield self._gauge("kv_cache_usage_perc", usage)
        yield self._counter("prefix_cache_queries", statistics.prefix_queries)
        yield self._counter("prefix_cache_hits", statistics.prefix_hits)
        for name in (
            "external_prefix_cache_queries",
            "external_prefix_cache_hits",
            "mm_cache_queries",
            "mm_cache_hits",
        ):
            yield self._counter(name, 0)
        yield self._counter("num_preemptions", statistics.preemptions)
        yield from self._token_counters()
        yield self._counters("request_success", "finished_reason", statistics.finished)
        yield self._rejections()
        for name, tally in self._tallies():
            yield self._histogram(name, tally)
        yield self._adapters(unix_of)
        yield self._cache_config()

    def _token_counters(self) -> Iterator[str]:
        statistics = self._engine.statistics
        cached = statistics.prompt_tokens_cached
        yield self._counter("prompt_tokens", statistics.prompt_tokens)
        sources = {
            "local_compute": statistics.prompt_tokens - cached,
            "local_cache_hit": cached,
            "external_kv_transfer": 0,
        }
        yield self._counters("prompt_tokens_by_source", "source", sources)
        yield self._counter("prompt_tokens_cached", cached)
        tiers = {"device": statistics.prefix_hits, "host": 0, "p2p": 0, "disk": 0, "external_unspecified": 0}
        yield self._counters("prompt_tokens_cached_by_source", "source", tiers)
        yield self._counter("generation_tokens", statistics.generation_tokens)

    def _tallies(self) -> Iterator[tuple[str, Tally]]:
        s = self._engine.statistics
        yield from (
            ("request_prompt_tokens", s.request_prompt_tokens),
            ("request_generation_tokens", s.request_generation_tokens),
            ("iteration_tokens_total", s.step_tokens),
            ("request_max_num_generation_tokens", s.request_max_generation_tokens),
            ("request_params_n", s.request_n),
            ("request_params_max_tokens", s.request_max_tokens),
            ("time_to_first_token_seconds", s.first_token_s),
            ("inter_token_latency_seconds", s.inter_token_s),
            ("request_time_per_output_token_seconds", s.time_per_output_token_s),
            ("e2e_request_latency_seconds", s.latency_s),
            ("request_queue_time_seconds", s.queue_s),
            ("request_inference_time_seconds", s.inference_s),
            ("request_prefill_time_seconds", s.prefill_s),
            ("request_decode_time_seconds", s.decode_s),
            ("request_num_preemptions", s.request_preemptions),
            ("request_prefill_kv_computed_tokens", s.request_computed_tokens),
        )

    def _gauge(self, name: str, value: float) -> str:
        return _family(name, "gauge", [(self._labels, value)])

    def _gauges(self, name: str, label: str, values: Mapping[str, float]) -> str:
        return _family(name, "gauge", [(self._labels | {label: key}, value) for key, value in values.items()])

    def _counter(self, name: str, value: float) -> str:
        return self._counted(name, [(self._labels, value)])

    def _counters(self, name: str, label: str, values: Mapping[str, float]) -> str:
        return self._counted(name, [(self._labels | {label: key}, value) for key, value in values.items()])

    def _rejections(self) -> str:
        labels = {"model_name": self._config.names[0]}
        rejected = self._engine.statistics.rejected.items()
        return self._counted("admission_rejections", [(labels | {"reason": key}, value) for key, value in rejected])

    def _counted(self, name: str, values: _LabelSets) -> str:
        values = list(values)
        lines = [_family(f"{name}_total", "counter", values, told=name)]
        lines.append(_head(f"{name}_created", "gauge", name))
        lines += [f"vllm:{name}_created{_label_text(labels)} {self._created}\n" for labels, _ in values]
        return "".join(lines)

    def _histogram(self, name: str, tally: Tally) -> str:
        taken, text = self._kept.get(name, (-1, ""))
        if taken != tally.taken:
            text = self._histogram_text(name, tally)
            self._kept[name] = tally.taken, text
        return text

    def _histogram_text(self, name: str, tally: Tally) -> str:
        labels = _label_text(self._labels)
        edges = [number(edge) for edge in (*tally.edges, float("inf"))]
        before = f'vllm:{name}_bucket{{engine="{self._labels["engine"]}",le="'
        after = f'",{_label_text({"model_name": self._labels["model_name"]})[1:]} '
        lines = [_head(name, "histogram", name)]
        lines += [
            f"{before}{edge}{after}{number(count)}\n"
            for edge, count in zip(edges, accumulate(tally.counts), strict=True)
        ]
        lines.append(f"vllm:{name}_count{labels} {number(tally.taken)}\n")
        lines.append(f"vllm:{name}_sum{labels} {number(tally.sum)}\n")
        lines.append(_head(f"{name}_created", "gauge", name))
        lines.append(f"vllm:{name}_created{labels} {self._created}\n")
        return "".join(lines)

    def _adapters(self, unix_of: float) -> str:
        config = self._config
        series = [(running, waiting, at + unix_of) for running, waiting, at in self._engine.adapter_info.series]
        if config.fake_metrics is not None and config.fake_metrics.loras:
            series = list(config.fake_metrics.loras)
        if not series:
            return ""
        most = str(config.limits.max_loras)
        labelled = [
            ({"max_lora": most, "running_lora_adapters": running, "waiting_lora_adapters": waiting}, at)
            for running, waiting, at in series
        ]
        return _family("lora_requests_info", "gauge", labelled)

    def _cache_config(self) -> str:
        limits = self._config.limits
        tokens = limits.blocks_count * limits.block_size
        labels = CACHE_LABELS | {
            "block_size": str(limits.block_size),
            "effective_attention_block_size": str(limits.block_size),
            "enable_prefix_caching": str(limits.is_caching),
            "engine": str(self._config.rank),
            "kv_cache_max_concurrency": str(tokens / limits.max_model_len),
            "kv_cache_size_tokens": str(tokens),
            "num_gpu_blocks": str(limits.blocks_count),
        }
        return _family("cache_config_info", "gauge", [(labels, 1)])


def _family(name: str, kind: str, values: _LabelSets, *, told: str = "") -> str:
    lines = [_head(name, kind, told or name)]
    lines += [f"vllm:{name}{_label_text(labels)} {number(value)}\n" for labels, value in values]
    return "".join(lines)


def _head(name: str, kind: str, told: str) -> str:
    return f"# HELP vllm:{name} {HELP[told]}\n# TYPE vllm:{name} {kind}\n"


def _label_text(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(labels[name])}"' for name in sorted(labels)) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
