"""The list of all metrics for the guide, made from what a host shows. `python -m hotbay.observe.reference FILE` writes it.

The lines between the two marks of the file are replaced; a contract test holds them equal to what is made here.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hotbay.observe.facts import GenerationFacts, HostFacts, PluginFacts, StoreFacts
from hotbay.observe.histogram import LabelledCounter, LabelledHistogram
from hotbay.observe.metrics import Metrics

__all__ = ["reference_lines", "with_reference"]

BEGIN: Final = "<!-- metrics: made by hotbay.observe.reference -->"
END: Final = "<!-- /metrics -->"


def reference_lines() -> Iterator[str]:
    """A table row for each metric: name, type, labels, text."""
    yield "| name | type | labels | what |"
    yield "|---|---|---|---|"
    for family in _everything().families():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in family.samples[0].labels if label != "le")
        yield f"| `{name}` | {family.type} | {labels} | {family.documentation} |"


def with_reference(text: str) -> str:
    """The page with its list made anew."""
    before, _, rest = text.partition(f"{BEGIN}\n")
    _, _, after = rest.partition(END)
    return "\n".join([f"{before}{BEGIN}", *reference_lines(), f"{END}{after}"])


def _everything() -> Metrics:
    """Metrics in which every family has a sample."""
    metrics = Metrics()
    for counter in vars(metrics).values():
        if isinstance(counter, LabelledCounter):
            counter.add(tuple("x" for _ in counter.labels))
        elif isinstance(counter, LabelledHistogram):
            counter.of(tuple("x" for _ in counter.labels))
    metrics.plugin_counters.add("x", "x", 1, {})
    generation = GenerationFacts(1, 1)
    facts = HostFacts(
        plugins=(PluginFacts("x", "live", generation, generation),),
        sources={"x": "watching"},
        quarantined={"x": 1},
        store=StoreFacts(0, 0, 0),
        stale={"x": 0},
        available={"x": 0},
        intervals_s={"x": 1.0},
    )
    metrics.facts = lambda: facts
    return metrics


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_reference(page.read_text(encoding="utf-8")), encoding="utf-8")
