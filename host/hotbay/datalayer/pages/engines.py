"""Which samples of a metrics page mean what, per engine, as data; and which engine a page or an endpoint is of. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hotbay.config.engine_parameters import CustomMetric, EngineMapping, EngineParameters
from hotbay.config.metric_specs import MetricSpec
from hotbay.datalayer.pages.text import PageText

__all__ = [
    "DEFAULT_ENGINE",
    "ENGINES",
    "LEGACY_ENGINE_LABEL",
    "NO_ENGINE",
    "CacheGauges",
    "CacheInfo",
    "Engine",
    "EngineSet",
    "LoraInfo",
]

LEGACY_ENGINE_LABEL: Final = "inference.networking.k8s.io/engine-type"
"""An older spelling of the label that names the engine; read when the newer one is not there."""


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """The info series whose labels tell the cache's geometry."""

    info: MetricSpec
    block_size: str
    num_blocks: str
    capacity_tokens: str = ""


@dataclass(frozen=True, slots=True)
class CacheGauges:
    """The cache's geometry where it is told by series of their own."""

    block_size: MetricSpec | None
    num_blocks: MetricSpec | None


@dataclass(frozen=True, slots=True)
class LoraInfo:
    """The info series of LoRA adapters: its value is the time of writing, the newest series is the true one."""

    info: MetricSpec
    running: str
    waiting: str
    maximum: str


_LORA_LABELS: Final = ("running_lora_adapters", "waiting_lora_adapters", "max_lora")


@dataclass(frozen=True, slots=True)
class Engine:
    """How one engine names things. Each of the first three is a choice of specs, newest spelling first; none: not read.

    `optional` names fields that some versions do not report; their absence is no problem. `prefixes` begin every
    family of the engine and so give it away.
    """

    name: str
    prefixes: tuple[str, ...]
    waiting: tuple[MetricSpec, ...]
    running: tuple[MetricSpec, ...]
    kv_usage: tuple[MetricSpec, ...] = ()
    cache: CacheInfo | None = None
    gauges: CacheGauges | None = None
    lora: LoraInfo | None = None
    model_label: str = ""
    optional: frozenset[str] = frozenset()
    custom: tuple[CustomMetric, ...] = ()


_VLLM: Final = Engine(
    name="vllm",
    prefixes=("vllm:",),
    waiting=(MetricSpec("vllm:num_requests_waiting"),),
    running=(MetricSpec("vllm:num_requests_running"),),
    kv_usage=(MetricSpec("vllm:kv_cache_usage_perc"), MetricSpec("vllm:gpu_cache_usage_perc")),
    cache=CacheInfo(MetricSpec("vllm:cache_config_info"), "block_size", "num_gpu_blocks", "kv_cache_size_tokens"),
    lora=LoraInfo(MetricSpec("vllm:lora_requests_info"), *_LORA_LABELS),
    model_label="model_name",
)
_SGLANG: Final = Engine(
    name="sglang",
    prefixes=("sglang:",),
    waiting=(MetricSpec("sglang:num_queue_reqs"),),
    running=(MetricSpec("sglang:num_running_reqs"),),
    kv_usage=(MetricSpec("sglang:token_usage"),),
    cache=CacheInfo(MetricSpec("sglang:cache_config_info"), "page_size", "num_pages"),
    model_label="model_name",
)
_TRTLLM: Final = Engine(
    name="trtllm-serve",
    prefixes=("trtllm_",),
    waiting=(MetricSpec("trtllm_num_requests_waiting"),),
    running=(MetricSpec("trtllm_num_requests_running"),),
    kv_usage=(MetricSpec("trtllm_kv_cache_utilization"),),
    gauges=CacheGauges(MetricSpec("trtllm_kv_cache_tokens_per_block"), MetricSpec("trtllm_kv_cache_max_blocks")),
)
_TRITON_LLM: Final = Engine(
    name="triton-tensorrt-llm",
    prefixes=("nv_trt_llm_",),
    waiting=(MetricSpec("nv_trt_llm_request_metrics", (("request_type", "waiting"),)),),
    running=(MetricSpec("nv_trt_llm_request_metrics", (("request_type", "scheduled"),)),),
    kv_usage=(MetricSpec("nv_trt_llm_kv_cache_block_metrics", (("kv_cache_block_type", "fraction"),)),),
    gauges=CacheGauges(
        MetricSpec("nv_trt_llm_kv_cache_block_metrics", (("kv_cache_block_type", "tokens_per"),)),
        MetricSpec("nv_trt_llm_kv_cache_block_metrics", (("kv_cache_block_type", "max"),)),
    ),
)
_TRITON: Final = Engine(
    name="triton",
    prefixes=("nv_inference_",),
    waiting=(MetricSpec("nv_inference_pending_request_count"),),
    running=(MetricSpec("nv_inference_exec_count"),),
)
_LLAMACPP: Final = Engine(
    name="llamacpp",
    prefixes=("llamacpp:",),
    waiting=(MetricSpec("llamacpp:requests_deferred"),),
    running=(MetricSpec("llamacpp:requests_processing"),),
    # Builds of 2025 and later no longer report it.
    kv_usage=(MetricSpec("llamacpp:kv_cache_usage_ratio"),),
    optional=frozenset({"kv_usage"}),
)

ENGINES: Final = {engine.name: engine for engine in (_VLLM, _LLAMACPP, _SGLANG, _TRTLLM, _TRITON_LLM, _TRITON)}
"""Built-in mappings by the value of the engine label. A Triton that runs an LLM also reports its general families,
so the LLM mapping stands first."""

_ALIASES: Final = {"llama.cpp": "llamacpp", "llama-cpp": "llamacpp"}
DEFAULT_ENGINE: Final = "vllm"
"""Applies to a page that gives no engine away."""

NO_ENGINE: Final = EngineParameters(label_key="", default_engine="none", engines=(EngineMapping("none"),))
"""Of pages nothing is read but what other extractors want: no label is looked at, and the one mapping has no specs."""


class EngineSet:
    """All engines of a host, and the choice among them.

    An engine is what the endpoint's label says; without a label, or with one that names no engine, it is the configured
    default, else the one that the page gives away, else vLLM.

    Args:
        parameters: engines of the operator's own, which replace built-in ones of their names.
    """

    def __init__(self, parameters: EngineParameters = EngineParameters()) -> None:  # noqa: B008 - it cannot be changed
        self.parameters = parameters
        own = {mapping.name: _engine(mapping) for mapping in parameters.engines}
        self._engines = {**ENGINES, **own}
        self._default = parameters.default_engine
        self._labels = (parameters.label_key, LEGACY_ENGINE_LABEL) if parameters.label_key else ()
        self._custom = parameters.custom
        self._needles = tuple(
            (name, tuple(b"\n" + prefix.encode("ascii") for prefix in engine.prefixes))
            for name, engine in self._engines.items()
        )

    def named(self, name: str) -> Engine:
        """The engine of that name, which there is."""
        return self._engines[name]

    def custom(self, name: str) -> tuple[CustomMetric, ...]:
        """The custom metrics of pages of that engine."""
        return (*self._custom, *self._engines[name].custom)

    def stated(self, labels: Mapping[str, str]) -> str | None:
        """The engine that labels or configuration name; None when only a page can tell."""
        return self.labelled(labels) or self._default

    def labelled(self, labels: Mapping[str, str]) -> str | None:
        """The engine that labels name; None when they name none, or one that there is not."""
        for label in self._labels:
            if label in labels:
                name = labels[label].strip().lower()
                name = name if name in self._engines else _ALIASES.get(name, name)
                return name if name in self._engines else None
        return None

    def detected(self, page: PageText) -> str | None:
        """The engine whose families a page has; None for none."""
        for name, needles in self._needles:
            if any(page.buffer.find(needle, page.start - 1, page.end) >= 0 for needle in needles):
                return name
        return None

    def metric(self, name: str, field: str) -> str:
        """A field of a page with the family that it is read from, in its newest spelling; the field alone without one."""
        engine = self._engines[name]
        specs: dict[str, tuple[MetricSpec | None, ...]] = {
            "waiting": engine.waiting, "running": engine.running, "kv_usage": engine.kv_usage
        }  # fmt: skip
        if engine.cache is not None:
            specs["cache"] = (engine.cache.info,)
        if engine.gauges is not None:
            specs |= {"block_size": (engine.gauges.block_size,), "num_blocks": (engine.gauges.num_blocks,)}
        specs |= {f"attribute {custom.attribute}": (custom.spec,) for custom in self.custom(name)}
        spellings = [spec for spec in specs.get(field, ()) if spec is not None]
        return f"{field} ({spellings[0]})" if spellings else field


def _engine(mapping: EngineMapping) -> Engine:
    gauges = None
    if mapping.block_size is not None or mapping.num_blocks is not None:
        gauges = CacheGauges(mapping.block_size, mapping.num_blocks)
    info, lora = mapping.cache_info, mapping.lora
    return Engine(
        name=mapping.name,
        # An engine that is no built-in one does not say how its families begin, and is not guessed.
        prefixes=ENGINES[mapping.name].prefixes if mapping.name in ENGINES else (),
        waiting=() if mapping.queued is None else (mapping.queued,),
        running=() if mapping.running is None else (mapping.running,),
        kv_usage=() if mapping.kv_usage is None else (mapping.kv_usage,),
        cache=None if info is None else CacheInfo(info, mapping.block_size_label, mapping.num_blocks_label),
        gauges=gauges,
        lora=None if lora is None else LoraInfo(lora, *_LORA_LABELS),
        model_label="model_name",
        custom=mapping.custom,
    )
