"""Filter and scorer of how near an endpoint is to the one that an earlier profile of the request chose."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from hotbay_sdk import Context, Endpoints, Filter, ParameterError, Request, Scorer

from hotbay_labels.label_tables import LABELS, Bools, LabelColumn
from hotbay_labels.package import plugin
from hotbay_labels.places import LEVELS, RATINGS, Floats, Ints, Level, nearness

READS: Final = (LABELS, "request.peer")


@dataclass(frozen=True, slots=True)
class TopologyParameters:
    """Labels that tell the places of an endpoint; the last is taken for the reference's files and means nothing."""

    hostname: str = "kubernetes.io/hostname"
    rack: str = "topology.kubernetes.io/rack"
    zone: str = "topology.kubernetes.io/zone"
    region: str = "topology.kubernetes.io/region"
    topologyProducerName: str = ""

    def __post_init__(self) -> None:
        for name in ("hostname", "rack", "zone", "region"):
            if not getattr(self, name):
                raise ParameterError(name, "expected the name of a label, found ''")


@dataclass(frozen=True, slots=True)
class TopologyFilterParameters(TopologyParameters):
    """`minAffinity`: the loosest level that still counts as near."""

    minAffinity: Level = "host"


class _Topology:
    """Reads the four labels of all endpoints, and finds peers among them."""

    def __init__(self, parameters: TopologyParameters) -> None:
        labels = (parameters.hostname, parameters.rack, parameters.zone, parameters.region)
        self._columns = [LabelColumn(label) for label in labels]

    def levels(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Ints | None]:
        """For each request the levels of all rows; None without a peer that is known. Requests with one peer share them."""
        peers = [request.peer for request in requests]
        columns = [column.read(endpoints) for column in self._columns]
        rows = _rows_of(set(peers) - {""}, endpoints.ids)
        found = {peer: nearness(columns, row) for peer, row in rows.items()}
        return [found.get(peer) for peer in peers]


def _rows_of(wanted: set[str], ids: Sequence[str]) -> dict[str, int]:
    return {name: row for row, name in enumerate(ids) if name in wanted} if wanted else {}


@plugin.type("topology-affinity-filter", reads=READS, parameters=TopologyFilterParameters)
class TopologyAffinityFilter(Filter):
    """Endpoints that are near the peer. A preference: where nobody is, or nothing is known of a peer, it keeps all."""

    def __init__(self, context: Context, parameters: TopologyFilterParameters) -> None:
        self._topology = _Topology(parameters)
        self._loosest = LEVELS.index(parameters.minAffinity)

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Bools]:
        """One row of flags per request."""
        everybody: Bools = np.ones(len(endpoints), dtype=np.bool_)
        rows: list[Bools] = []
        for number, levels in enumerate(self._topology.levels(requests, endpoints)):
            near = everybody if levels is None else levels <= self._loosest
            candidates = np.frombuffer(endpoints.mask(number), dtype=np.bool_)
            rows.append(near if (near & candidates).any() else everybody)
        return rows


@plugin.type("topology-affinity-scorer", reads=READS, parameters=TopologyParameters)
class TopologyAffinityScorer(Scorer):
    """The nearer to the peer, the better; 0 for all without a peer of which something is known."""

    def __init__(self, context: Context, parameters: TopologyParameters) -> None:
        self._topology = _Topology(parameters)

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Floats]:
        """One row of ratings per request."""
        nothing: Floats = np.zeros(len(endpoints), dtype=np.float32)
        found = self._topology.levels(requests, endpoints)
        return [nothing if levels is None else RATINGS[levels] for levels in found]
