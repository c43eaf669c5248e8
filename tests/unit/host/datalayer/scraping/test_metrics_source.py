"""Where pages of an endpoint are asked for, and what reading them takes."""

import dataclasses

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.scraping.metrics_source import COST_POLLS, MetricsPoller
from hotbay.datalayer.scraping.schedule import MOST_SHARE
from hotbay.datalayer.sources.builtin import DcgmSource

A = EndpointMetadata("default/a", "a", "10.0.0.1", 8000)
ON_NODE = dataclasses.replace(A, node_address="fd00::9")
ELSEWHERE = dataclasses.replace(ON_NODE, metrics_host="10.0.0.2:9000")


@pytest.mark.parametrize(
    ("port", "at_node", "endpoint", "authority"),
    [
        (None, False, A, "10.0.0.1:8000"),
        (9400, False, A, "10.0.0.1:9400"),
        (9400, False, ON_NODE, "10.0.0.1:9400"),
        (9400, False, ELSEWHERE, "10.0.0.2:9000"),
        (None, False, ELSEWHERE, "10.0.0.2:9000"),
        (9400, True, A, "10.0.0.1:9400"),
        (9400, True, ON_NODE, "[fd00::9]:9400"),
        (9400, True, ELSEWHERE, "[fd00::9]:9400"),
        (None, True, ELSEWHERE, "10.0.0.2:9000"),
    ],
)
def test_pages_are_asked_for_where_they_are(
    port: int | None, at_node: bool, endpoint: EndpointMetadata, authority: str
) -> None:
    assert MetricsPoller(port=port, at_node=at_node).authority(endpoint) == authority


def test_an_endpoint_that_was_never_asked_costs_nothing() -> None:
    assert DcgmSource().cost_s(A.id) == 0.0


def test_a_page_that_is_dear_each_second_time_costs_half_of_it_and_one_by_chance_next_to_nothing() -> None:
    poller = MetricsPoller()
    costs_s = poller._known_of(A).costs_s
    costs_s.append(0.016)
    assert poller.cost_s(A.id) == 0.016 / COST_POLLS < MOST_SHARE * poller.interval_s
    costs_s.append(0.012)
    assert poller.cost_s(A.id) == 0.012
    costs_s.extend((0.5, 0.001) * (COST_POLLS // 2))
    assert poller.cost_s(A.id) == pytest.approx(0.2505)
    costs_s.extend((0.001,) * COST_POLLS)
    assert poller.cost_s(A.id) == pytest.approx(0.001)
