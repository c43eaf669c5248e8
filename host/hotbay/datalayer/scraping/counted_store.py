"""The store as a scraper sees it: a failure that it records is counted for its source, too, and whoever is asked is told of."""

from collections.abc import Callable, Mapping

from hotbay.datalayer.attributes import AttributeValue
from hotbay.datalayer.endpoint import EndpointEvent, EndpointMetadata, Metrics
from hotbay.datalayer.source import Counts
from hotbay.datalayer.store import EndpointStore

__all__ = ["CountedPages", "CountedScrapes"]


class CountedScrapes:
    """See the module; a `ScrapeStore`. `source` is the name of what is scraped; `heard` is told whose page came, or failed."""

    def __init__(
        self, store: EndpointStore, source: str, counts: Counts, *, heard: Callable[[str], None] = lambda _id: None
    ) -> None:
        self._store = store
        self._source = source
        self._counts = counts
        self._heard = heard

    def endpoints(self) -> tuple[EndpointMetadata, ...]:
        return self._store.endpoints()

    def subscribe(self, listener: Callable[[EndpointEvent], None]) -> Callable[[], None]:
        return self._store.subscribe(listener)

    def update_metrics(self, endpoint_id: str, metrics: Metrics, now: float) -> bool:
        self._heard(endpoint_id)
        return self._store.update_metrics(endpoint_id, metrics, now)

    def put_attributes(self, endpoint_id: str, values: Mapping[str, AttributeValue | None], now: float) -> bool:
        return self._store.put_attributes(endpoint_id, values, now)

    def record_lacks(self, endpoint_id: str, lacks: tuple[str, ...]) -> None:
        self._store.record_lacks(endpoint_id, lacks)

    def record_scrape_failure(self, endpoint_id: str, reason: str) -> bool:
        self._heard(endpoint_id)
        recorded = self._store.record_scrape_failure(endpoint_id, reason)
        if recorded:
            self._counts.poll_failed(self._source)
        return recorded


class CountedPages(CountedScrapes):
    """For pages of which only extractors read anything: the store learns nothing of them, nor whether their server answers.

    It need not be the endpoint's own, which may be well while an exporter beside it is not.
    """

    def update_metrics(self, endpoint_id: str, metrics: Metrics, now: float) -> bool:
        self._heard(endpoint_id)
        return endpoint_id in self._store

    def put_attributes(self, endpoint_id: str, values: Mapping[str, AttributeValue | None], now: float) -> bool:
        return endpoint_id in self._store

    def record_scrape_failure(self, endpoint_id: str, reason: str) -> bool:
        self._heard(endpoint_id)
        is_there = endpoint_id in self._store
        if is_there:
            self._counts.poll_failed(self._source)
        return is_there

    def record_lacks(self, endpoint_id: str, lacks: tuple[str, ...]) -> None:
        """Nothing is looked for in them that the store would know of."""
