"""`header-based-testing-filter`: a header of the request says at which addresses it may end."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from hotbay_sdk import Context, Endpoints, Filter, Request

from hotbay_labels.authorities import selected
from hotbay_labels.label_tables import Bools, places_of
from hotbay_labels.package import plugin

SELECTION_HEADER: Final = "test-epp-endpoint-selection"
ADDRESS: Final = "endpoint.address"


@plugin.type("header-based-testing-filter", reads=[ADDRESS, f"request.headers[{SELECTION_HEADER}]"])
class HeaderBasedTestingFilter(Filter):
    """Endpoints at the addresses that a header lists; none without the header. For tests of what stands in front."""

    def __init__(self, context: Context) -> None:
        self._name = context.name

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Bools]:
        """One row of flags per request; requests with one header share the array."""
        values, codes = endpoints.table(ADDRESS)
        places = places_of(codes, len(values))
        headers = [request.header(SELECTION_HEADER) or "" for request in requests]
        kept = {header: np.array([*selected(header, values), False], dtype=np.bool_)[places] for header in set(headers)}
        return [kept[header] for header in headers]
