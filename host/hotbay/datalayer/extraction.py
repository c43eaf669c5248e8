"""Reads what a metrics page says about its endpoint, by the mapping of its engine.

A field of Metrics stays None when its family is missing or its value cannot be true (not a number, negative, beyond
any count); the fields beside it are read all the same. Several series of one family are the ranks of one server:
counts add up, usage is their mean. Pure.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hotbay.datalayer.endpoint import Metrics
from hotbay.datalayer.engines import DEFAULT_ENGINE, ENGINES, Engine, Spec, detect_engine, engine_of_labels, parse_spec
from hotbay.datalayer.exposition import PageReader, Sample

__all__ = ["EngineReader", "Extraction", "extract"]

_LARGEST: Final = 1 << 53
"""Beyond it a float no longer counts by one; no server has so many of anything."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a page gave: metrics, and what was wrong with it. `missing` and `invalid` are names of fields."""

    metrics: Metrics
    missing: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    bad_lines: int = 0
    duplicates: int = 0


def extract(body: bytes, labels: Mapping[str, str]) -> Extraction:
    """Read a page by the mapping of the labelled engine, else of the one that the page shows, else of the default.

    Raises:
        ExpositionError: the body is no metrics page.
    """
    name = engine_of_labels(labels) or detect_engine(body) or DEFAULT_ENGINE
    return _READERS[name].read(body)


class EngineReader:
    """Reads pages of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._counts = {
            "waiting": [parse_spec(text) for text in engine.waiting],
            "running": [parse_spec(text) for text in engine.running],
        }
        self._kv_usage = [parse_spec(text) for text in engine.kv_usage]
        self._page = PageReader(self._families())

    def read(self, body: bytes) -> Extraction:
        """Read one page.

        Raises:
            ExpositionError: the body is no metrics page.
        """
        page = self._page.read(body)
        fields = _Fields(self._engine.optional)
        waiting = fields.reading("waiting", _chosen(self._counts["waiting"], page.samples), _total)
        running = fields.reading("running", _chosen(self._counts["running"], page.samples), _total)
        kv_usage = None
        if self._kv_usage:
            kv_usage = fields.reading("kv_usage", _chosen(self._kv_usage, page.samples), _mean_share)
        block_size, num_blocks, capacity = self._cache(fields, page.samples)
        active, queued, maximum = self._lora(page.samples)
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
            model=self._model(page.samples),
            engine=self._engine.name if page.samples else None,
        )
        return Extraction(metrics, tuple(fields.missing), tuple(fields.invalid), page.bad_lines, page.duplicates)

    def _families(self) -> set[str]:
        families = {spec.name for spec in (*self._counts["waiting"], *self._counts["running"], *self._kv_usage)}
        cache, lora = self._engine.cache, self._engine.lora
        if cache is not None:
            texts = [cache.family] if cache.family else [cache.block_size, cache.num_blocks]
            families.update(parse_spec(text).name for text in texts)
        if lora is not None:
            families.add(lora.family)
        return families

    def _cache(
        self, fields: "_Fields", samples: Mapping[str, tuple[Sample, ...]]
    ) -> tuple[int | None, int | None, int | None]:
        cache = self._engine.cache
        if cache is None:
            return None, None, None
        capacity = None
        if cache.family:
            infos = samples.get(cache.family, ())
            if not infos:
                fields.missing.append("cache")
                return None, None, None
            block_size = _label_count(infos[:1], cache.block_size)
            num_blocks = _label_count(infos, cache.num_blocks)
            capacity = _label_count(infos, cache.capacity_tokens) if cache.capacity_tokens else None
        else:
            block_size = _whole(fields.reading("block_size", parse_spec(cache.block_size).series(samples), _first))
            num_blocks = _whole(fields.reading("num_blocks", parse_spec(cache.num_blocks).series(samples), _total))
        if capacity is None and block_size is not None and num_blocks is not None:
            capacity = _countable(block_size * num_blocks)
        return block_size, num_blocks, capacity

    def _lora(
        self, samples: Mapping[str, tuple[Sample, ...]]
    ) -> tuple[frozenset[str] | None, frozenset[str] | None, float | None]:
        lora = self._engine.lora
        series = [s for s in samples.get(lora.family, ()) if not math.isnan(s.value)] if lora else []
        if lora is None or not series:
            return None, None, None
        newest = max(series, key=lambda sample: sample.value).labels
        maximum = _label_number(newest.get(lora.maximum, ""))
        return _names(newest.get(lora.running, "")), _names(newest.get(lora.waiting, "")), maximum

    def _model(self, samples: Mapping[str, tuple[Sample, ...]]) -> str | None:
        series = _chosen(self._counts["running"], samples)
        return (series[0].labels.get(self._engine.model_label) or None) if series else None


class _Fields:
    """Collects what is missing and what cannot be true while a page is read."""

    def __init__(self, optional: frozenset[str]) -> None:
        self._optional = optional
        self.missing: list[str] = []
        self.invalid: list[str] = []

    def reading(
        self, name: str, series: tuple[Sample, ...], combine: Callable[[Iterable[float]], float]
    ) -> float | None:
        if not series:
            if name not in self._optional:
                self.missing.append(name)
            return None
        values = [sample.value for sample in series]
        if not all(0.0 <= value <= _LARGEST for value in values):
            self.invalid.append(name)
            return None
        return combine(values)


def _chosen(specs: list[Spec], samples: Mapping[str, tuple[Sample, ...]]) -> tuple[Sample, ...]:
    for spec in specs:
        if series := spec.series(samples):
            return series
    return ()


def _total(values: Iterable[float]) -> float:
    return sum(values)


def _mean_share(values: Iterable[float]) -> float:
    values = tuple(values)
    return min(1.0, sum(values) / len(values))


def _first(values: Iterable[float]) -> float:
    return next(iter(values))


def _whole(value: float | None) -> int | None:
    return _countable(int(value)) if value is not None else None


def _countable(number: int) -> int | None:
    return number if number <= _LARGEST else None


def _label_number(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None


def _label_count(infos: Iterable[Sample], label: str) -> int | None:
    """Sum of a label's whole numbers over series; None when one is not a number, as in `None`."""
    total = 0
    for info in infos:
        number = _label_number(info.labels.get(label, ""))
        if number is None:
            return None
        total += int(number)
    return _countable(total)


def _names(text: str) -> frozenset[str]:
    return frozenset(name for part in text.split(",") if (name := part.strip()))


_READERS: Final = {name: EngineReader(engine) for name, engine in ENGINES.items()}
