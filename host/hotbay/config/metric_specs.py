"""How a configuration names series of a metrics page: `name{label=value,…}`. Pure.

Quotes around a value may be left out, white space may stand anywhere between the parts.
"""

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["MetricSpec", "SpecSyntaxError", "parse_metric_spec"]

_SPEC: Final = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{([^{}]*)\})?\s*\Z")
_MATCHER: Final = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*(?:"([^"]*)"|([^\s",]*))\s*(?:,|\Z)')
_MAX_CHARS: Final = 1024
"""It is looked for in every page; names have some fifty characters."""


class SpecSyntaxError(ValueError):
    """A text is not of the form `name{label=value,…}`."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A sample name and the label values that its series must have, in the order in which they were written."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        labels = ",".join(f'{label}="{value}"' for label, value in self.labels)
        return f"{self.name}{{{labels}}}" if labels else self.name


def parse_metric_spec(text: str) -> MetricSpec:
    """Read a spec.

    Raises:
        SpecSyntaxError: the text is none; its message says which part.
    """
    match = _SPEC.match(text) if len(text) <= _MAX_CHARS else None
    if match is None:
        raise SpecSyntaxError(f"expected name{{label=value,…}}, found {text[:80]!r}")
    labels: dict[str, str] = {}
    inner = (match[2] or "").rstrip()
    position = 0
    while position < len(inner):
        matcher = _MATCHER.match(inner, position)
        if matcher is None or inner.endswith(","):
            raise SpecSyntaxError(f"expected label=value, found {inner[position:][:80]!r} in {text[:80]!r}")
        if matcher[1] in labels:
            raise SpecSyntaxError(f"the label {matcher[1]} stands twice in {text[:80]!r}")
        labels[matcher[1]] = matcher[2] if matcher[2] is not None else matcher[3]
        position = matcher.end()
    return MetricSpec(match[1], tuple(labels.items()))
