"""A scorer that reads many columns and does next to nothing with them: what it costs to have them.

`packages.py` puts this file into a wheel as it stands; nothing imports it here.
"""

from collections.abc import Sequence

from hotbay_sdk import Endpoints, Plugin, Request, Scorer

__all__ = ["plugin"]

COLUMNS = (
    "endpoint.waiting",
    "endpoint.running",
    "endpoint.kv_usage",
    "endpoint.in_flight",
    "endpoint.age_waiting",
    "endpoint.age_running",
    "endpoint.age_kv_usage",
    "endpoint.weight",
    "endpoint.kv_capacity_tokens",
    "endpoint.in_flight_tokens",
)

plugin = Plugin("bench-wide")


@plugin.type("wide-scorer", reads=COLUMNS, rowwise=True)
class WideScorer(Scorer):
    """Rates endpoints by their weight."""

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[memoryview]:
        """The same row for every request."""
        for name in COLUMNS:
            endpoints.column(name)
        return [endpoints.column("endpoint.weight")] * len(requests)
