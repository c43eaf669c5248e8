"""Where endpoints listen, by their ids: what headers name.

`endpoint.address` is a side table of texts `host:port`, an IPv6 address in brackets.
"""

from collections.abc import Iterable
from typing import Final

from hotbay_sdk import Endpoints

READ: Final = "endpoint.address"


def row_of(endpoints: Endpoints, endpoint_id: str | None) -> int | None:
    """The row of an endpoint; None for one that is gone."""
    if not endpoint_id:
        return None
    try:
        return endpoints.ids.index(endpoint_id)
    except ValueError:
        return None


def addresses_of(endpoints: Endpoints, endpoint_ids: Iterable[str]) -> list[str]:
    """Addresses of those that are there and known, in their order."""
    values, codes = endpoints.table(READ)
    found = []
    for endpoint_id in endpoint_ids:
        row = row_of(endpoints, endpoint_id)
        if row is not None and codes[row] < len(values):
            found.append(str(values[codes[row]]))
    return [address for address in found if address]


def row_at(endpoints: Endpoints, address: str) -> int | None:
    """The first row of an address."""
    values, codes = endpoints.table(READ)
    for row, endpoint_id in enumerate(endpoints.ids):
        if endpoint_id and codes[row] < len(values) and values[codes[row]] == address:
            return row
    return None
