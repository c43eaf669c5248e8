"""Filter and scorer of one attribute, which the operator names and some extractor makes.

What an instance reads depends on its parameters: the types declare the wildcard, the instances the attribute.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from hotbay_sdk import Context, Endpoints, Filter, Request, Scorer

from hotbay_attributes.figures import Bools, Floats, known_figures, or_everybody, passes, rate_among, rate_within
from hotbay_attributes.package import plugin
from hotbay_attributes.parameters import FilterParameters, ScorerParameters, parse_filter, parse_scorer

READS: Final = ("attribute.*",)


@plugin.type("endpoint-attribute-filter", reads=READS, parameters=parse_filter)
class EndpointAttributeFilter(Filter):
    """Endpoints whose attribute passes a comparison."""

    def __init__(self, context: Context, parameters: FilterParameters) -> None:
        self._column = f"attribute.{parameters.attribute}"
        self.reads = [self._column]
        self._parameters = parameters

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Bools]:
        """One row of flags per request, mostly the same."""
        how = self._parameters
        figures = known_figures(endpoints.column(self._column))
        kept = passes(figures, how.comparison, how.threshold, unknown_passes=how.missing_passes)
        if not how.falls_back:
            return [kept] * len(requests)
        masks = [endpoints.mask(number) for number in range(len(requests))]
        rows = {mask: or_everybody(kept, np.frombuffer(mask, dtype=np.bool_)) for mask in set(masks)}
        return [rows[mask] for mask in masks]


@plugin.type("endpoint-attribute-scorer", reads=READS, parameters=parse_scorer)
class EndpointAttributeScorer(Scorer):
    """Where an endpoint's attribute lies in a range, which is fixed or that of the candidates."""

    def __init__(self, context: Context, parameters: ScorerParameters) -> None:
        self._column = f"attribute.{parameters.attribute}"
        self.reads = [self._column]
        self._range = parameters.fixed_range
        self._lower_is_better = parameters.lower_is_better

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Floats]:
        """One row of ratings per request; requests that share their candidates share the array."""
        figures = known_figures(endpoints.column(self._column))
        lower = self._lower_is_better
        if self._range is not None:
            return [rate_within(figures, *self._range, lower_is_better=lower)] * len(requests)
        masks = [endpoints.mask(number) for number in range(len(requests))]
        rated = {
            mask: rate_among(figures, np.frombuffer(mask, dtype=np.bool_), lower_is_better=lower) for mask in set(masks)
        }
        return [rated[mask] for mask in masks]
