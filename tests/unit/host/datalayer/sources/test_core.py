"""The core extractor behind a source that is polled."""

import pytest
from hotbay.config.engine_parameters import CustomMetric, EngineMapping, EngineParameters
from hotbay.config.metric_specs import parse_metric_spec
from hotbay.datalayer.endpoint import Endpoint, EndpointMetadata, Metrics
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.sources.core import CoreMetricsExtractor


def custom(attribute):
    return CustomMetric(attribute, parse_metric_spec("family"))


def test_custom_metrics_of_all_engines_are_columns():
    parameters = EngineParameters(engines=(EngineMapping("own", custom=(custom("b"),)),), custom=(custom("a"),))
    assert CoreMetricsExtractor("core", parameters).columns == {"a": "f32", "b": "f32"}


@pytest.mark.anyio
async def test_what_a_page_says_of_its_endpoint_is_taken_over():
    endpoint = Endpoint(EndpointMetadata("n/a", "a", "10.0.0.1", 8000))
    page = MetricsPage("vllm", Metrics(waiting=3.0))
    assert await CoreMetricsExtractor("core", EngineParameters()).extract(page, endpoint) == Metrics(waiting=3.0)
