"""Parameters of `core-metrics-extractor`: which samples of a metrics page mean what, for engines of the operator's own.

An entry of `engineConfigs` replaces the built-in engine of its name as a whole, as in the reference: a spec that is left
out, or empty, is not read. The other built-in engines stay. Pure.
"""

import re
from dataclasses import dataclass
from typing import Final

from hotbay.config.forms import Form
from hotbay.config.metric_specs import MetricSpec, SpecSyntaxError, parse_metric_spec
from hotbay.config.wording import Path, Value, quoted

__all__ = [
    "BUILT_IN_ENGINES",
    "DEFAULT_LABEL_KEY",
    "CustomMetric",
    "EngineMapping",
    "EngineParameters",
    "read_engine_parameters",
]

BUILT_IN_ENGINES: Final = ("vllm", "llamacpp", "sglang", "trtllm-serve", "triton-tensorrt-llm", "triton")
DEFAULT_LABEL_KEY: Final = "llm-d.ai/engine-type"

_RESERVED: Final = "default"
_ATTRIBUTE: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}\Z")
_FIELDS: Final = ("engineLabelKey", "defaultEngine", "engineConfigs", "customMetrics")
_SPECS: Final = (
    "queuedRequestsSpec",
    "runningRequestsSpec",
    "kvUsageSpec",
    "loraSpec",
    "cacheInfoSpec",
    "cacheBlockSizeSpec",
    "cacheNumBlocksSpec",
)
_LABELS: Final = {"cacheBlockSizeLabelName": "block_size", "cacheNumBlocksLabelName": "num_gpu_blocks"}


@dataclass(frozen=True, slots=True)
class CustomMetric:
    """A number that is read from a page into an attribute: the sum over the series that the spec means."""

    attribute: str
    spec: MetricSpec


@dataclass(frozen=True, slots=True)
class EngineMapping:
    """One entry of `engineConfigs`; None = not read. The two labels are those of the cache info series."""

    name: str
    queued: MetricSpec | None = None
    running: MetricSpec | None = None
    kv_usage: MetricSpec | None = None
    lora: MetricSpec | None = None
    cache_info: MetricSpec | None = None
    block_size: MetricSpec | None = None
    num_blocks: MetricSpec | None = None
    block_size_label: str = "block_size"
    num_blocks_label: str = "num_gpu_blocks"
    custom: tuple[CustomMetric, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineParameters:
    """All of the parameters. `default_engine` None: what the page gives away, else vLLM. `custom` is for all engines."""

    label_key: str = DEFAULT_LABEL_KEY
    default_engine: str | None = None
    engines: tuple[EngineMapping, ...] = ()
    custom: tuple[CustomMetric, ...] = ()


def read_engine_parameters(form: Form, parameters: Value, at: Path) -> EngineParameters:
    """Read what stands at `at`; problems go to the form, and what has one is left out of the result."""
    fields = form.fields(parameters, at, _FIELDS)
    label_key = form.name(fields["engineLabelKey"], (*at, "engineLabelKey")) if "engineLabelKey" in fields else None
    engines: dict[str, EngineMapping] = {}
    for path, item in form.items(fields.get("engineConfigs"), (*at, "engineConfigs")):
        engine = _engine(form, item, path)
        if engine is not None and engines.setdefault(engine.name, engine) is not engine:
            form.report(
                (*path, "name"), "DUPLICATE_NAME", f"the engine {quoted(engine.name)} is configured twice",
                hint="one entry says everything of its engine: put them together",
            )  # fmt: skip
    default = _default_engine(form, fields.get("defaultEngine"), (*at, "defaultEngine"), {*engines, *BUILT_IN_ENGINES})
    custom = _custom_metrics(form, fields.get("customMetrics"), (*at, "customMetrics"))
    _refuse_repeated(form, engines, custom, at)
    return EngineParameters(label_key or DEFAULT_LABEL_KEY, default, tuple(engines.values()), custom)


def _engine(form: Form, item: Value, path: Path) -> EngineMapping | None:
    fields = form.fields(item, path, ("name", *_SPECS, *_LABELS, "customMetrics"))
    name = form.name(fields.get("name"), (*path, "name")) if isinstance(item, dict) else None
    specs = {field: _spec(form, fields.get(field), (*path, field)) for field in _SPECS}
    labels = {
        field: (form.name(fields[field], (*path, field)) if fields.get(field) else None) or standard
        for field, standard in _LABELS.items()
    }
    custom = _custom_metrics(form, fields.get("customMetrics"), (*path, "customMetrics"))
    if name is None:
        return None
    name = name.strip().lower()
    if name == _RESERVED:
        form.expected(
            (*path, "name"), "a name other than `default`", name, hint="say which engine is it by `defaultEngine`"
        )
        return None
    return EngineMapping(
        name,
        queued=specs["queuedRequestsSpec"],
        running=specs["runningRequestsSpec"],
        kv_usage=specs["kvUsageSpec"],
        lora=specs["loraSpec"],
        cache_info=specs["cacheInfoSpec"],
        block_size=specs["cacheBlockSizeSpec"],
        num_blocks=specs["cacheNumBlocksSpec"],
        block_size_label=labels["cacheBlockSizeLabelName"],
        num_blocks_label=labels["cacheNumBlocksLabelName"],
        custom=custom,
    )


def _default_engine(form: Form, value: Value, path: Path, known: set[str]) -> str | None:
    if value is None:
        return None
    name = form.name(value, path)
    if name is not None and name.strip().lower() not in known:
        form.expected(path, f"one of {', '.join(sorted(known))}", name)
    return name.strip().lower() if name is not None else None


def _spec(form: Form, value: Value, path: Path) -> MetricSpec | None:
    if value is None or value == "":
        return None
    text = form.text(value, path)
    if text is None:
        return None
    try:
        return parse_metric_spec(text)
    except SpecSyntaxError as error:
        form.report(
            path, "CONFIG_INVALID", str(error), expected="name{label=value,…}", found=quoted(text[:80]),
            hint="name the series as the page does, such as vllm:num_requests_waiting",
        )  # fmt: skip
        return None


def _custom_metrics(form: Form, value: Value, at: Path) -> tuple[CustomMetric, ...]:
    """The reference's examples say `metricSpec`, its table `spec`: both are read."""
    found: list[CustomMetric] = []
    for path, item in form.items(value, at):
        fields = form.fields(item, path, ("attributeKey", "spec", "metricSpec"))
        if not isinstance(item, dict):
            continue
        attribute = form.text(fields.get("attributeKey"), (*path, "attributeKey"))
        if attribute is not None and not _ATTRIBUTE.match(attribute):
            form.expected((*path, "attributeKey"), "1 to 128 characters of A-Z a-z 0-9 _ . : / -", attribute)
        if "spec" in fields and "metricSpec" in fields:
            form.report((*path, "metricSpec"), "CONFIG_INVALID", "`spec` and `metricSpec` are the same: write one")
        field = "metricSpec" if "metricSpec" in fields else "spec"
        if not fields.get(field):
            form.expected((*path, field), "name{label=value,…}", fields.get(field))
        spec = _spec(form, fields.get(field), (*path, field))
        if attribute is not None and spec is not None:
            found.append(CustomMetric(attribute, spec))
    return tuple(found)


def _refuse_repeated(form: Form, engines: dict[str, EngineMapping], custom: tuple[CustomMetric, ...], at: Path) -> None:
    """One page gives an attribute one value: no key may stand twice for one engine."""
    for engine_custom in (custom, *((*custom, *engine.custom) for engine in engines.values())):
        keys = [metric.attribute for metric in engine_custom]
        repeated = sorted({key for key in keys if keys.count(key) > 1})
        if repeated:
            message = f"the attribute {quoted(repeated[0])} is given by two custom metrics of one engine"
            form.report((*at, "customMetrics"), "DUPLICATE_NAME", message)
            return
