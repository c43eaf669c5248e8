"""The cheapest plugin that the protocol allows: one scorer that looks at nothing. It needs the SDK and msgpack alone.

`packages.py` puts this file into a wheel as it stands; nothing imports it here.
"""

from collections.abc import Sequence

from hotbay_sdk import Context, Endpoints, Plugin, Request, Scorer

__all__ = ["plugin"]

plugin = Plugin("bench-echo")


@plugin.type("echo-scorer")
class EchoScorer(Scorer):
    """Rates one endpoint, whichever it is."""

    def __init__(self, context: Context) -> None:
        self._row = (1.0,)

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Sequence[float]]:
        """The same row for every request."""
        return [self._row] * len(requests)
