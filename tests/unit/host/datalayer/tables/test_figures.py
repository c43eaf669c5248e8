"""Pages of an endpoint that say the same again, told by the very same object."""

import math

from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.rows import ScrapeStatus

A = EndpointMetadata("default/a", "a", "10.0.0.1", 8000)


def store_of_one() -> EndpointStore:
    store = EndpointStore()
    store.upsert(A)
    return store


def test_the_very_same_report_renews_what_it_says_and_nothing_else() -> None:
    store = store_of_one()
    page = Metrics(waiting=1.0, max_active_models=4.0, active_models={"x": 1}, engine="vllm")
    store.update_metrics("default/a", page, 1.0)
    store.update_metrics("default/a", Metrics(running=2.0), 1.0)
    store.update_metrics("default/a", page, 2.0)
    store.record_scrape_failure("default/a", "gone")
    store.update_metrics("default/a", page, 3.0)
    live, snapshot = store.endpoint("default/a"), store.publish(3.5)
    assert live is not None
    fresh = dict.fromkeys(("waiting", "max_active_models", "active_models", "engine"), 3.0)
    assert live.metrics == Metrics(1.0, 2.0, max_active_models=4.0, active_models={"x": 1}, engine="vllm",
                                   updated_at=fresh | {"running": 1.0})  # fmt: skip
    assert live.clone().metrics == live.metrics
    ages = {name: snapshot.columns[f"endpoint.age_{name}"][0] for name in ("waiting", "running", "lora")}
    assert ages == {"waiting": 0.5, "running": 2.5, "lora": 0.5}
    assert store.scrape_status("default/a") == ScrapeStatus(5, 1, 0, 3.0, "gone")


def test_the_same_report_counts_after_another_one_too() -> None:
    store = store_of_one()
    one, other = Metrics(waiting=1.0), Metrics(waiting=2.0)
    for at, page in enumerate((one, other, one, one)):
        store.update_metrics("default/a", page, float(at))
    live = store.endpoint("default/a")
    assert live is not None
    assert live.metrics == Metrics(waiting=1.0, updated_at={"waiting": 3.0})
    assert store.publish(3.0).columns["endpoint.waiting"][0] == 1.0


def test_the_same_report_shows_again_what_was_stale() -> None:
    store, page = store_of_one(), Metrics(waiting=1.0)
    store.update_metrics("default/a", page, 1.0)
    assert math.isnan(store.publish(4.0).columns["endpoint.waiting"][0])
    store.update_metrics("default/a", page, 4.01)
    assert store.publish(4.01).columns["endpoint.waiting"][0] == 1.0


def test_the_same_report_is_new_to_an_endpoint_that_came_back() -> None:
    store, page = store_of_one(), Metrics(waiting=1.0)
    store.update_metrics("default/a", page, 1.0)
    store.delete("default/a")
    store.upsert(A)
    store.update_metrics("default/a", page, 1.0)
    assert store.publish(1.0).columns["endpoint.waiting"][0] == 1.0
