"""Which endpoints one request may still be sent to. Pure but for `look`, which reads what is known of endpoints now.

Invariants: no endpoint is tried twice, no more than MAX_CANDIDATES are, and no more decisions than that are asked for; one
that is gone or cordoned is passed over, and not asked for again.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.gateway.seams import Look

__all__ = ["MAX_CANDIDATES", "Candidates"]

MAX_CANDIDATES: Final = 3
"""The picked endpoint and two others: more tries would only multiply a client's wait."""


class Candidates:
    """Those of one request, tried in the order in which they were offered."""

    __slots__ = ("_decisions", "_gone", "_look", "_offered", "_port", "_tried")

    def __init__(self, look: Look) -> None:
        self._look = look
        self._offered: Sequence[EndpointMetadata] = ()
        self._port: int | None = None
        self._tried: set[str] = set()
        self._gone: set[str] = set()
        self._decisions = 1

    def offer(self, endpoints: Sequence[EndpointMetadata], port: int | None = None) -> None:
        """Try these from now on, at `port` of their addresses where one is given."""
        self._offered, self._port = endpoints, port

    def next(self) -> EndpointMetadata | None:
        """The next one, which counts as tried; None when there is none, or were enough."""
        if len(self._tried) >= MAX_CANDIDATES:
            return None
        for one in self._offered:
            if one.id not in self._tried and one.id not in self._gone:
                endpoint = self._look(one)
                if endpoint is not None:
                    self._tried.add(one.id)
                    return self._at_port(endpoint)
                self._gone.add(one.id)
        return None

    def others(self) -> list[str]:
        """Authorities of those that would follow."""
        left = [one for one in self._offered if one.id not in self._tried and one.id not in self._gone]
        return [self._at_port(one).authority for one in left]

    def is_left_behind(self, endpoint: EndpointMetadata) -> bool:
        """Whether the one that is tried went, moved or was cordoned meanwhile; then it does not count as tried."""
        now = self._look(endpoint)
        if now is not None and self._at_port(now).authority == endpoint.authority:
            return False
        self._tried.discard(endpoint.id)
        if now is None:
            self._gone.add(endpoint.id)
        return True

    def ask_again(self) -> frozenset[str] | None:
        """Ids that another decision has to avoid; None when there may be no other."""
        if max(len(self._tried), self._decisions) >= MAX_CANDIDATES:
            return None
        self._decisions += 1
        return frozenset(self._tried | self._gone)

    def _at_port(self, endpoint: EndpointMetadata) -> EndpointMetadata:
        return endpoint if self._port is None else replace(endpoint, port=self._port)
