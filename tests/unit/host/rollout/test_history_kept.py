"""How much of a routine's history is kept: enough for every way back, and no more."""

import pytest
from hotbay.rollout.memory import HISTORY_KEPT, superfluous
from hotbay.store.digests import Digest, digest_of
from hotbay.store.gc_plan import Demand, plan_gc
from hotbay.store.world.changes import view_of
from hotbay.store.world.records import Completion, History
from hypothesis import given
from hypothesis import strategies as st


def digest(rev: int) -> Digest:
    return digest_of(f"{rev}".encode())


def entry(number: int, rev: int) -> History:
    return History("a", number, digest(rev), rev, "1.0.0", number, 0.0, "newer version", "hotbay")


def completion(rev: int) -> Completion:
    return Completion(digest(rev), "a", rev, (), "e", "t", 0.0)


@pytest.mark.parametrize(("count", "gone"), [(HISTORY_KEPT, []), (HISTORY_KEPT + 1, [1]), (HISTORY_KEPT + 2, [1, 2])])
def test_newest_entries_are_kept(count: int, gone: list[int]) -> None:
    history = [entry(number, number) for number in range(1, count + 1)]
    assert [old.number for old in superfluous(view_of(1, history), history)] == gone


def test_newest_entry_of_what_is_complete_stays_however_old_it_is() -> None:
    history = [entry(1, 1), entry(2, 2), entry(3, 1), entry(4, 3)]
    history += [entry(number, number % 2 + 10) for number in range(5, 5 + HISTORY_KEPT)]
    view = view_of(1, [*history, completion(1), completion(10), completion(11)])
    assert [old.number for old in superfluous(view, history)] == [1, 2, 4]


@given(st.lists(st.integers(1, 5), max_size=12), st.sets(st.integers(1, 5)), st.integers(1, 3))
def test_last_versions_are_the_same_as_with_all_of_it(revs: list[int], complete: set[int], keep: int) -> None:
    newer = [entry(100 + n, 9) for n in range(HISTORY_KEPT)]
    history = [*(entry(number, rev) for number, rev in enumerate(revs, 1)), *newer]
    completions = [completion(rev) for rev in complete]
    gone = superfluous(view_of(1, [*history, *completions]), history)
    assert {old.number for old in gone} <= set(range(1, len(revs) + 1))

    def collected(kept: list[History]) -> tuple[Digest, ...]:
        view = view_of(1, [*kept, *completions])
        plan = plan_gc(view, demand=Demand(), keep_versions=keep, blobs_present={}, environments_present={})
        return plan.completions

    left = [each for each in history if each not in gone]
    assert collected(left) == collected(history)
    last = [each.digest for each in history if each.rev in complete][-1:]
    assert [each.digest for each in left if each.rev in complete][-1:] == last, "what a rollback goes to"
