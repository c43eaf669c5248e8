"""The plugin and its one type."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from hotbay_sdk import Context, Endpoints, Plugin, Request, Scorer

from hotbay_lora.adapters import Floats, Places, Residents

plugin = Plugin("lora")

ACTIVE: Final = "endpoint.active_models"
WAITING: Final = "endpoint.waiting_models"
MOST: Final = "endpoint.max_active_models"


@plugin.type("lora-affinity-scorer", reads=[ACTIVE, WAITING, MOST, "request.lora", "request.target_model"])
class LoraAffinityScorer(Scorer):
    """Prefers endpoints that have the request's adapter, then those that have room for it, then those that wait for it."""

    def __init__(self, context: Context) -> None:
        self._name = context.name
        self._codes: tuple[object, object] = (None, None)
        self._residents = Residents((), (), np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp))

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Floats]:
        """One row of ratings per request; requests of one adapter share the array."""
        residents = self._read(endpoints)
        most = np.asarray(endpoints.column(MOST), dtype=np.float32)
        # An adapter is asked for by its own name as the model, where the request does not name it beside.
        adapters = [(request.lora or request.target_model).strip() for request in requests]
        rated = {adapter: residents.rate(adapter, most) for adapter in set(adapters)}
        return [rated[adapter] for adapter in adapters]

    def _read(self, endpoints: Endpoints) -> Residents:
        """The side tables, anew where the host sent others: a table stays the same object until then."""
        active, active_codes = endpoints.table(ACTIVE)
        waiting, waiting_codes = endpoints.table(WAITING)
        if active_codes is not self._codes[0] or waiting_codes is not self._codes[1]:
            self._residents = Residents(
                active, waiting, _places(active_codes, len(active)), _places(waiting_codes, len(waiting))
            )
            self._codes = (active_codes, waiting_codes)
        return self._residents


def _places(codes: object, count: int) -> Places:
    """Place of each row's value; `count` for a row without a known one, whose code is above all."""
    places: Places = np.minimum(np.asarray(codes, dtype=np.uint32), count).astype(np.intp)
    return places
