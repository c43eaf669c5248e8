"""Which samples of a metrics page mean what, per engine, as data; and which engine a page or an endpoint is of. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hotbay.datalayer.exposition import Sample

__all__ = [
    "DEFAULT_ENGINE",
    "ENGINES",
    "ENGINE_LABELS",
    "CacheInfo",
    "Engine",
    "LoraInfo",
    "Spec",
    "SpecSyntaxError",
    "detect_engine",
    "engine_of_labels",
    "named_metric",
    "parse_spec",
]

ENGINE_LABELS: Final = ("llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type")
"""Endpoint labels that name the engine; the second is an older spelling of the first."""

_SPEC: Final = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{([^{}]*)\})?\s*\Z")
_MATCHER: Final = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*(?:"([^"]*)"|([^\s",]*))\s*\Z')


class SpecSyntaxError(ValueError):
    """A family spec is not of the form `name{label=value,…}`."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A sample name and the label values that its series must have."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()

    def series(self, samples: Mapping[str, tuple[Sample, ...]]) -> tuple[Sample, ...]:
        """The page's series that this spec means."""
        found = samples.get(self.name, ())
        if not self.labels:
            return found
        return tuple(s for s in found if all(s.labels.get(label) == value for label, value in self.labels))


def parse_spec(text: str) -> Spec:
    """Read `name` or `name{label=value,…}`; quotes around values are optional.

    Raises:
        SpecSyntaxError: anything else.
    """
    match = _SPEC.match(text)
    if match is None:
        raise SpecSyntaxError(f"expected name{{label=value,…}}, found {text!r}")
    labels = []
    for part in (match[2] or "").split(",") if (match[2] or "").strip() else []:
        matcher = _MATCHER.match(part)
        if matcher is None:
            raise SpecSyntaxError(f"expected label=value, found {part!r} in {text!r}")
        labels.append((matcher[1], matcher[2] if matcher[2] is not None else matcher[3]))
    return Spec(match[1], tuple(labels))


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Where the cache geometry is: labels of one info series, or gauges of their own (`family` is then empty)."""

    family: str
    block_size: str
    num_blocks: str
    capacity_tokens: str = ""


@dataclass(frozen=True, slots=True)
class LoraInfo:
    """The info series of LoRA adapters: its value is the time of writing, the newest series is the true one."""

    family: str
    running: str
    waiting: str
    maximum: str


@dataclass(frozen=True, slots=True)
class Engine:
    """How one engine names things. Each of the first three is a choice of specs, newest spelling first.

    `optional` names fields that some versions do not report; their absence is no problem. `prefixes` begin every
    family of the engine and so give it away.
    """

    name: str
    prefixes: tuple[str, ...]
    waiting: tuple[str, ...]
    running: tuple[str, ...]
    kv_usage: tuple[str, ...] = ()
    cache: CacheInfo | None = None
    lora: LoraInfo | None = None
    model_label: str = ""
    optional: frozenset[str] = frozenset()


_VLLM: Final = Engine(
    name="vllm",
    prefixes=("vllm:",),
    waiting=("vllm:num_requests_waiting",),
    running=("vllm:num_requests_running",),
    kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    cache=CacheInfo("vllm:cache_config_info", "block_size", "num_gpu_blocks", "kv_cache_size_tokens"),
    lora=LoraInfo("vllm:lora_requests_info", "running_lora_adapters", "waiting_lora_adapters", "max_lora"),
    model_label="model_name",
)
_SGLANG: Final = Engine(
    name="sglang",
    prefixes=("sglang:",),
    waiting=("sglang:num_queue_reqs",),
    running=("sglang:num_running_reqs",),
    kv_usage=("sglang:token_usage",),
    cache=CacheInfo("sglang:cache_config_info", "page_size", "num_pages"),
    model_label="model_name",
)
_TRTLLM: Final = Engine(
    name="trtllm-serve",
    prefixes=("trtllm_",),
    waiting=("trtllm_num_requests_waiting",),
    running=("trtllm_num_requests_running",),
    kv_usage=("trtllm_kv_cache_utilization",),
    cache=CacheInfo("", "trtllm_kv_cache_tokens_per_block", "trtllm_kv_cache_max_blocks"),
)
_TRITON_LLM: Final = Engine(
    name="triton-tensorrt-llm",
    prefixes=("nv_trt_llm_",),
    waiting=("nv_trt_llm_request_metrics{request_type=waiting}",),
    running=("nv_trt_llm_request_metrics{request_type=scheduled}",),
    kv_usage=("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}",),
    cache=CacheInfo(
        "",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=tokens_per}",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}",
    ),
)
_TRITON: Final = Engine(
    name="triton",
    prefixes=("nv_inference_",),
    waiting=("nv_inference_pending_request_count",),
    running=("nv_inference_exec_count",),
)
_LLAMACPP: Final = Engine(
    name="llamacpp",
    prefixes=("llamacpp:",),
    waiting=("llamacpp:requests_deferred",),
    running=("llamacpp:requests_processing",),
    # Builds of 2025 and later no longer report it.
    kv_usage=("llamacpp:kv_cache_usage_ratio",),
    optional=frozenset({"kv_usage"}),
)

ENGINES: Final = {engine.name: engine for engine in (_VLLM, _LLAMACPP, _SGLANG, _TRTLLM, _TRITON_LLM, _TRITON)}
"""Built-in mappings by the value of the engine label. A Triton that runs an LLM also reports its general families,
so the LLM mapping stands first."""

_ALIASES: Final = {"llama.cpp": "llamacpp", "llama-cpp": "llamacpp"}
DEFAULT_ENGINE: Final = "vllm"
"""Applies to a page that gives no engine away."""

_NEEDLES: Final = tuple(
    (name, tuple(b"\n" + prefix.encode("ascii") for prefix in engine.prefixes)) for name, engine in ENGINES.items()
)


def engine_of_labels(labels: Mapping[str, str]) -> str | None:
    """The engine that an endpoint's labels name; None when they name none, or one that has no mapping."""
    for label in ENGINE_LABELS:
        if label in labels:
            name = labels[label].strip().lower()
            name = _ALIASES.get(name, name)
            return name if name in ENGINES else None
    return None


def named_metric(engine: str | None, name: str) -> str:
    """A field of an extraction with the family that it is read from, in its newest spelling; the field alone if there is none."""
    mapping = ENGINES[engine or DEFAULT_ENGINE]
    families = {"waiting": mapping.waiting, "running": mapping.running, "kv_usage": mapping.kv_usage}
    if (cache := mapping.cache) is not None:
        families |= {"cache": (cache.family,), "block_size": (cache.block_size,), "num_blocks": (cache.num_blocks,)}
    spellings = families.get(name)
    return f"{name} ({spellings[0]})" if spellings else name


def detect_engine(body: bytes) -> str | None:
    """The engine whose families a page has; None for none."""
    for name, needles in _NEEDLES:
        if any(needle in body or body.startswith(needle[1:]) for needle in needles):
            return name
    return None
