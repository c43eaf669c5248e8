"""A whole plugin: one scorer, per endpoint. Imports hotbay_sdk and the standard library only."""

import math

from hotbay_sdk import Context, Endpoint, Plugin, Request, Scorer

plugin = Plugin("least-loaded")


@plugin.type("least-loaded-scorer", reads=["endpoint.in_flight", "endpoint.waiting", "endpoint.running"], rowwise=True)
class LeastLoadedScorer(Scorer):
    """1 / (1 + requests), of the requests that the engine reported or the host has sent it, whichever is more."""

    def __init__(self, context: Context) -> None:
        self._name = context.name

    def score(self, request: Request, endpoint: Endpoint) -> float:
        """Rate one endpoint; 0.5 while its load is unknown."""
        load = max(endpoint.in_flight, endpoint.waiting + endpoint.running)
        return 0.5 if math.isnan(load) else 1 / (1 + max(0.0, load))
