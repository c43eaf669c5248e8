"""Reads what a metrics page says about its endpoint, by the mapping of its engine.

A field of Metrics stays None when its family is missing or its value cannot be true (not a number, negative, beyond
any count); the fields beside it are read all the same. Several series of one family are the ranks of one server:
counts and custom metrics add up, usage is their mean. Of an endpoint that a `PageMemory` is kept of, a page that says
the same as the one before gives that one's very result. Pure.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from hotbay.config.engine_parameters import CustomMetric
from hotbay.datalayer.endpoint import Metrics
from hotbay.datalayer.pages.engines import DEFAULT_ENGINE, Engine, EngineSet
from hotbay.datalayer.pages.exposition import Form, PageMemory, PageReader
from hotbay.datalayer.pages.line_search import FULL_EVERY
from hotbay.datalayer.pages.readings import (
    LARGEST,
    Fields,
    Samples,
    chosen,
    countable,
    first,
    label_count,
    label_number,
    mean_share,
    names_in,
    series_of,
    total,
    whole,
)
from hotbay.datalayer.pages.steps import Steps, at_once
from hotbay.datalayer.pages.text import PageText

__all__ = ["EndpointMemory", "MetricsPage", "MetricsReader"]

_LARGEST_SHARE: Final = 1.01
"""Engines round; what is more is no share, but a percentage or a count."""


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """What a page gave: the payload of a metrics source.

    Args:
        engine: the mapping that it was read by.
        metrics: what it says of the endpoint.
        samples: series of the families that other extractors want, by sample name.
        attributes: custom metrics by attribute key.
        missing: fields that the mapping has and the page has not.
        invalid: fields whose value cannot be true.
        bad_lines: lines of wanted names that cannot be read.
        duplicates: series that stood twice, of which the last counts.
    """

    engine: str
    metrics: Metrics
    samples: Samples = field(default_factory=dict, repr=False)
    attributes: Mapping[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    bad_lines: int = 0
    duplicates: int = 0


class EndpointMemory:
    """What is kept of the last page of one endpoint."""

    __slots__ = ("detected", "pages", "parsed", "read", "result")

    def __init__(self) -> None:
        self.pages = 0
        self.detected: str | None = None
        self.read = ""
        self.parsed = PageMemory()
        self.result: MetricsPage | None = None


class MetricsReader:
    """Reads pages of all engines.

    Args:
        engines: all that there are.
        wanted: further sample names, for other extractors.
    """

    def __init__(self, engines: EngineSet, wanted: Iterable[str] = ()) -> None:
        self.engines = engines
        self._wanted = frozenset(wanted)
        self._readers: dict[str, _EngineReader] = {}

    def read(
        self, page: PageText, labels: Mapping[str, str], form: Form = Form.TEXT, memory: EndpointMemory | None = None
    ) -> MetricsPage:
        """Read a page of an endpoint with these labels.

        Raises:
            ExpositionError: it is no metrics page, or not a whole one.
        """
        return at_once(self.reading(page, labels, form, memory))

    def reading(
        self, page: PageText, labels: Mapping[str, str], form: Form = Form.TEXT, memory: EndpointMemory | None = None
    ) -> Steps[MetricsPage]:
        """`read` in steps of some ms; the memory is this one's until they are taken."""
        memory = memory or EndpointMemory()
        name = self._engine(page, labels, memory)
        reader = self._readers.get(name)
        if reader is None:
            engine = self.engines.named(name)
            reader = self._readers[name] = _EngineReader(engine, self.engines.custom(name), self._wanted)
        if name != memory.read:
            memory.read, memory.parsed, memory.result = name, PageMemory(), None
        result = memory.result = yield from reader.reading(page, form, memory)
        return result

    def _engine(self, page: PageText, labels: Mapping[str, str], memory: EndpointMemory) -> str:
        """The engine; what a page gives away is looked for when nothing was found last time, and now and then."""
        name = self.engines.stated(labels)
        if name is not None:
            return name
        found_nothing = memory.result is None or memory.result.metrics.engine is None
        if memory.detected is None or found_nothing or memory.pages % FULL_EVERY == 0:
            memory.detected = self.engines.detected(page)
        memory.pages += 1
        return memory.detected or DEFAULT_ENGINE


class _EngineReader:
    """Reads pages of one engine."""

    def __init__(self, engine: Engine, custom: tuple[CustomMetric, ...], wanted: frozenset[str]) -> None:
        self._engine = engine
        self._custom = custom
        self._wanted = wanted
        self._page = PageReader({*_names_of(engine), *(metric.spec.name for metric in custom), *wanted})

    def reading(self, text: PageText, form: Form, memory: EndpointMemory) -> Steps[MetricsPage]:
        """Read one page; the last result if it says the same. Raises `ExpositionError`."""
        before, last = memory.parsed.page, memory.result
        page = yield from self._page.reading(text, form, memory.parsed)
        if last is not None and page is before:
            return last
        engine, samples = self._engine, page.samples
        fields = Fields(engine.optional)
        waiting = fields.reading("waiting", engine.waiting, samples, total)
        running = fields.reading("running", engine.running, samples, total)
        kv_usage = fields.reading("kv_usage", engine.kv_usage, samples, mean_share, most=_LARGEST_SHARE)
        block_size, num_blocks, capacity = self._cache(fields, samples)
        active, queued, maximum = self._lora(fields, samples)
        metrics = Metrics(
            waiting=waiting,
            running=running,
            kv_usage=kv_usage,
            kv_capacity_tokens=capacity,
            block_size=block_size,
            num_blocks=num_blocks,
            max_active_models=maximum,
            active_models=active,
            waiting_models=queued,
            model=self._model(samples),
            engine=engine.name if samples else None,
        )
        attributes = self._attributes(fields, samples)
        return MetricsPage(
            engine.name,
            metrics,
            MappingProxyType({name: samples[name] for name in self._wanted if name in samples}),
            attributes,
            tuple(fields.missing),
            tuple(fields.invalid),
            page.bad_lines,
            page.duplicates,
        )

    def _cache(self, fields: Fields, samples: Samples) -> tuple[int | None, int | None, int | None]:
        cache, gauges = self._engine.cache, self._engine.gauges
        block_size = num_blocks = capacity = None
        infos = () if cache is None else series_of(cache.info, samples)
        if cache is not None and not infos:
            fields.missing.append("cache")
        elif cache is not None:
            block_size = label_count(infos[:1], cache.block_size)
            num_blocks = label_count(infos, cache.num_blocks)
            capacity = label_count(infos, cache.capacity_tokens) if cache.capacity_tokens else None
        if gauges is not None and gauges.block_size is not None:
            block_size = whole(fields.reading("block_size", (gauges.block_size,), samples, first))
        if gauges is not None and gauges.num_blocks is not None:
            num_blocks = whole(fields.reading("num_blocks", (gauges.num_blocks,), samples, total))
        if capacity is None and block_size is not None and num_blocks is not None:
            capacity = countable(block_size * num_blocks)
        return block_size, num_blocks, capacity

    def _lora(
        self, fields: Fields, samples: Samples
    ) -> tuple[Mapping[str, int] | None, Mapping[str, int] | None, float | None]:
        lora = self._engine.lora
        infos = () if lora is None else series_of(lora.info, samples)
        # What is no time of writing would be the newest for ever.
        series = [info for info in infos if 0.0 <= info.value <= LARGEST]
        if lora is None or not series:
            if infos:
                fields.invalid.append("lora")
            return None, None, None
        newest = max(series, key=lambda sample: sample.value).labels
        maximum = label_number(newest.get(lora.maximum, ""))
        if maximum == 0:
            fields.invalid.append("lora")
            maximum = None
        return names_in(newest.get(lora.running, "")), names_in(newest.get(lora.waiting, "")), maximum

    def _attributes(self, fields: Fields, samples: Samples) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for metric in self._custom:
            series = series_of(metric.spec, samples)
            value = sum(sample.value for sample in series)
            if not series:
                fields.missing.append(f"attribute {metric.attribute}")
            elif not math.isfinite(value):
                fields.invalid.append(f"attribute {metric.attribute}")
            else:
                found[metric.attribute] = value
        return MappingProxyType(found)

    def _model(self, samples: Samples) -> str | None:
        series = chosen(self._engine.running, samples)
        return (series[0].labels.get(self._engine.model_label) or None) if series else None


def _names_of(engine: Engine) -> set[str]:
    """The sample names that an engine's mapping reads."""
    specs = [*engine.waiting, *engine.running, *engine.kv_usage]
    if engine.cache is not None:
        specs.append(engine.cache.info)
    if engine.gauges is not None:
        specs += [spec for spec in (engine.gauges.block_size, engine.gauges.num_blocks) if spec is not None]
    if engine.lora is not None:
        specs.append(engine.lora.info)
    return {spec.name for spec in specs}
