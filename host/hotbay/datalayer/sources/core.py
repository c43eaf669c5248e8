"""`core-metrics-extractor`: what a metrics page says of its endpoint's load, cache and adapters.

The page is read by its engine's mapping when it comes (see `extraction`); this is where that is asked for. Behind a source of
metrics the scraper writes it, as soon as the page is there; behind another that brings pages it is an extractor like any.
"""

from collections.abc import Mapping

from hotbay.config.engine_parameters import EngineParameters
from hotbay.datalayer.endpoint import Endpoint, Metrics
from hotbay.datalayer.pages.extraction import MetricsPage

__all__ = ["CoreMetricsExtractor"]


class CoreMetricsExtractor:
    """See the module. `parameters` say how pages of which engine are read."""

    type = "core-metrics-extractor"
    payload = MetricsPage

    def __init__(self, name: str, parameters: EngineParameters) -> None:
        self.name = name
        self.parameters = parameters

    @property
    def columns(self) -> Mapping[str, str]:
        """Custom metrics, as columns."""
        parameters = self.parameters
        engines = (metric for engine in parameters.engines for metric in engine.custom)
        return {metric.attribute: "f32" for metric in (*parameters.custom, *engines)}

    async def extract(self, payload: object, endpoint: Endpoint) -> Metrics:
        assert isinstance(payload, MetricsPage)
        return payload.metrics
