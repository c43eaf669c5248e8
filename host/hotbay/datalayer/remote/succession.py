"""Which of the runs of a plugin is heard that tell of endpoints or objects: the one that told everything last. Pure.

Every process of the plugin tells all that there is, then what changes. Each run has a set of its own. The run that is in
force is followed as it speaks; another one, the first one too, is only remembered until it has told everything, and takes
over in one step: what it named is put in force, what it did not name goes. So a swap, a rollback and a crash change nothing
but what the plugin itself sees otherwise, and nothing is doubled, reordered or lost on the way.

Two runs look at the world at different moments. What the run in force said since its successor began is newer than what
the successor saw first, maybe: an item that just came would go, and come again a moment later. For such items the word of
the run that was in force holds until the successor speaks of them again, or `settle` is called.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, TypeAlias

from hotbay.datalayer.discovery.session import MAX_ENDPOINTS
from hotbay.datalayer.remote.records import Gone, ItemT, RecordOf, Refused, Told
from hotbay.errors import Problem

__all__ = ["Drop", "Put", "Replace", "Run", "Step", "Succession"]

MAX_REFUSED: Final = 64
"""Problems of one run that are kept: a plugin that gets everything wrong needs no more to be understood."""


@dataclass(frozen=True, slots=True)
class Put(Generic[ItemT]):
    """The item exists, and is this, from now on."""

    item: ItemT


@dataclass(frozen=True, slots=True)
class Drop:
    """The item is gone from now on."""

    item_id: str


@dataclass(frozen=True, slots=True)
class Replace(Generic[ItemT]):
    """Exactly these exist from now on: another run took over."""

    items: tuple[ItemT, ...]


Step: TypeAlias = Put[ItemT] | Drop | Replace[ItemT]


@dataclass(slots=True, eq=False)
class Run(Generic[ItemT]):
    """One run: what it has named, and what of it cannot be used.

    `contested` is what the run in force said meanwhile: an item that came or changed, None for one that is gone.
    """

    named: dict[str, ItemT] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)
    contested: dict[str, ItemT | None] = field(default_factory=dict)
    told: bool = False


class Succession(Generic[ItemT]):
    """See the module. `held` is what is in force, by id, also what earlier runs left."""

    def __init__(self) -> None:
        self.in_force: Run[ItemT] | None = None
        """The run that told everything last; also when it is over, until another one has."""
        self._coming: Run[ItemT] | None = None

    def begin(self) -> Run[ItemT]:
        """Another run, which is to succeed the one in force; the one that was to before is heard no more."""
        self._coming = Run()
        return self._coming

    def settle(self) -> Step[ItemT] | None:
        """The run in force has had time to look again: what it says is what counts, and nobody's word before it."""
        run = self.in_force
        if run is None or not run.contested:
            return None
        run.contested.clear()
        return Replace(tuple(run.named.values()))

    def take(
        self, run: Run[ItemT], record: RecordOf[ItemT], held: Mapping[str, ItemT], *, most: int = MAX_ENDPOINTS
    ) -> Step[ItemT] | None:
        """What a record of a run changes, where at most `most` items may be in force.

        `Replace`: the run is to take over. It has when `follow` is called; until then the one before is in force.
        """
        if isinstance(record, Told):
            return None if run.told else self._of_take_over(run, most)
        if isinstance(record, Gone):
            return self._gone(run, record.item_id)
        if isinstance(record, Refused):
            return self._refused(run, record, held)
        run.problems.pop(record.item.id, None)
        return self._put(run, record.item)

    def _put(self, run: Run[ItemT], item: ItemT) -> Step[ItemT] | None:
        run.named[item.id] = item
        return Put(item) if self._is_heard(run, item.id, item) else None

    def _gone(self, run: Run[ItemT], item_id: str) -> Step[ItemT] | None:
        run.problems.pop(item_id, None)
        known = run.named.pop(item_id, None) or (run.contested.get(item_id) if run.told else None)
        if known is None:
            return None
        return Drop(item_id) if self._is_heard(run, item_id, None) else None

    def _refused(self, run: Run[ItemT], record: Refused, held: Mapping[str, ItemT]) -> Step[ItemT] | None:
        """It exists, in whatever form: the last good one stays."""
        if record.item_id in run.problems or len(run.problems) < MAX_REFUSED:
            run.problems[record.item_id] = record.problem
        last_good = held.get(record.item_id)
        if last_good is None or record.item_id in run.named:
            return None
        return self._put(run, last_good)

    def follow(self, run: Run[ItemT]) -> None:
        """What it named is in force: it is heard from now on, and the one before no more."""
        run.told = True
        self.in_force, self._coming = run, None

    def _of_take_over(self, run: Run[ItemT], most: int) -> Replace[ItemT]:
        words = [run.contested.get(item_id, named) for item_id, named in run.named.items()]
        counts = [item for item in words if item is not None]
        others = (word for item_id, word in run.contested.items() if word is not None and item_id not in run.named)
        # What this run named has its room; what another one added may be more than there is room for.
        return Replace((*counts, *islice(others, max(0, most - len(counts)))))

    def _is_heard(self, run: Run[ItemT], item_id: str, word: ItemT | None) -> bool:
        """Whether what a run says of an item counts now; its successor is to know of it."""
        if run is not self.in_force:
            return False
        run.contested.pop(item_id, None)
        if self._coming is not None and len(self._coming.contested) < MAX_ENDPOINTS:
            self._coming.contested[item_id] = word
        return True
