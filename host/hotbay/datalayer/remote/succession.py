"""Which of the runs of a discovery plugin is heard: the one that told everything last. Pure.

Every process of the plugin tells all that there is, then what changes. Each run has a set of its own. The run that is in
force is followed as it speaks; another one, the first one too, is only remembered until it has told everything, and takes
over in one step: what it named is put in force, what it did not name goes. So a swap, a rollback and a crash change nothing
but what the plugin itself sees otherwise, and nothing is doubled, reordered or lost on the way.

Two runs look at the world at different moments. What the run in force said since its successor began is newer than what
the successor saw first, maybe: an endpoint that just came would go, and come again a moment later. For such endpoints the
word of the run that was in force holds until the successor speaks of them again, or `settle` is called.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from hotbay.datalayer.discovery.session import MAX_ENDPOINTS
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.remote.records import Gone, Record, Refused, Told
from hotbay.errors import Problem

__all__ = ["Drop", "Put", "Replace", "Run", "Step", "Succession"]

MAX_REFUSED: Final = 64
"""Problems of one run that are kept: a plugin that gets every endpoint wrong needs no more to be understood."""


@dataclass(frozen=True, slots=True)
class Put:
    """The endpoint exists from now on."""

    endpoint: EndpointMetadata


@dataclass(frozen=True, slots=True)
class Drop:
    """The endpoint is gone from now on."""

    endpoint_id: str


@dataclass(frozen=True, slots=True)
class Replace:
    """Exactly these exist from now on: another run took over."""

    endpoints: tuple[EndpointMetadata, ...]


Step = Put | Drop | Replace


@dataclass(slots=True, eq=False)
class Run:
    """One run: what it has named, and what of it cannot be used.

    `contested` is what the run in force said meanwhile: an endpoint that came or changed, None for one that is gone.
    """

    named: dict[str, EndpointMetadata] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)
    contested: dict[str, EndpointMetadata | None] = field(default_factory=dict)
    told: bool = False


class Succession:
    """See the module. `held` is what is in force, by id, also what earlier runs left."""

    def __init__(self) -> None:
        self.in_force: Run | None = None
        """The run that told everything last; also when it is over, until another one has."""
        self._coming: Run | None = None

    def begin(self) -> Run:
        """Another run, which is to succeed the one in force; the one that was to before is heard no more."""
        self._coming = Run()
        return self._coming

    def settle(self) -> Step | None:
        """The run in force has had time to look again: what it says is what counts, and nobody's word before it."""
        run = self.in_force
        if run is None or not run.contested:
            return None
        run.contested.clear()
        return Replace(tuple(run.named.values()))

    def take(self, run: Run, record: Record, held: Mapping[str, EndpointMetadata]) -> Step | None:
        """What a record of a run changes."""
        if isinstance(record, Told):
            return self._take_over(run)
        if isinstance(record, Gone):
            return self._gone(run, record.endpoint_id)
        if isinstance(record, Refused):
            return self._refused(run, record, held)
        run.problems.pop(record.endpoint.id, None)
        return self._put(run, record.endpoint)

    def _put(self, run: Run, endpoint: EndpointMetadata) -> Step | None:
        run.named[endpoint.id] = endpoint
        return Put(endpoint) if self._is_heard(run, endpoint.id, endpoint) else None

    def _gone(self, run: Run, endpoint_id: str) -> Step | None:
        run.problems.pop(endpoint_id, None)
        known = run.named.pop(endpoint_id, None) or (run.contested.get(endpoint_id) if run.told else None)
        if known is None:
            return None
        return Drop(endpoint_id) if self._is_heard(run, endpoint_id, None) else None

    def _refused(self, run: Run, record: Refused, held: Mapping[str, EndpointMetadata]) -> Step | None:
        """It exists, in whatever form: the last good one stays."""
        if record.endpoint_id in run.problems or len(run.problems) < MAX_REFUSED:
            run.problems[record.endpoint_id] = record.problem
        last_good = held.get(record.endpoint_id)
        if last_good is None or record.endpoint_id in run.named:
            return None
        return self._put(run, last_good)

    def _take_over(self, run: Run) -> Step | None:
        if run.told:
            return None
        run.told = True
        self.in_force, self._coming = run, None
        words = [run.contested.get(endpoint_id, named) for endpoint_id, named in run.named.items()]
        counts = [endpoint for endpoint in words if endpoint is not None]
        others = (
            word for endpoint_id, word in run.contested.items() if word is not None and endpoint_id not in run.named
        )
        # What this run named has its room; what another one added may be more than there is room for.
        return Replace((*counts, *islice(others, MAX_ENDPOINTS - len(counts))))

    def _is_heard(self, run: Run, endpoint_id: str, word: EndpointMetadata | None) -> bool:
        """Whether what a run says of an endpoint counts now; its successor is to know of it."""
        if run is not self.in_force:
            return False
        run.contested.pop(endpoint_id, None)
        if self._coming is not None and len(self._coming.contested) < MAX_ENDPOINTS:
            self._coming.contested[endpoint_id] = word
        return True
