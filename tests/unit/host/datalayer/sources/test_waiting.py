"""What waits for one plugin: in order, all of it up to a bound, and of more how things are."""

import pytest
from hotbay.datalayer.sources import waiting as waiting_module
from hotbay.datalayer.sources.waiting import LOST_SHOWN_S, MOST_BYTES_WAITING, MOST_NAMED, Entry, Lost, Waiting
from hypothesis import example, given
from hypothesis import strategies as st

STEPS = st.lists(st.sampled_from(["a", "b", "-a", "-b", "take"]), max_size=60)


def entry(word, number=0, size_bytes=0):
    return Entry(word.lstrip("-"), number, word.startswith("-"), 0.0, size_bytes)


def taken(waiting):
    return [waiting.take() for _ in range(len(waiting))]


@pytest.mark.parametrize(("count", "kept"), [(4, 4), (5, 1)])
def test_up_to_the_bound_everything_waits_and_of_more_the_newest_of_each_subject(count, kept):
    waiting = Waiting(4)
    passed_over = [one for number in range(count) for one in waiting.put(entry("a", number))]
    assert [one.event for one in passed_over] == list(range(count - kept))
    assert [one.event for one in taken(waiting)] == list(range(count - kept, count))


@pytest.mark.parametrize(("extra", "kept"), [(0, 2), (1, 1)])
def test_up_to_so_many_bytes_everything_waits_and_of_more_the_newest_of_each_subject(extra, kept):
    waiting = Waiting(100)
    waiting.put(entry("a", 0, MOST_BYTES_WAITING // 2))
    waiting.take()
    waiting.put(entry("a", 1, MOST_BYTES_WAITING // 2))
    passed_over = waiting.put(entry("a", 2, MOST_BYTES_WAITING // 2 + extra))
    assert (len(waiting), [one.event for one in passed_over]) == (kept, [1][: 2 - kept])


def test_bytes_that_are_kept_are_not_looked_through_at_every_event(monkeypatch):
    monkeypatch.setattr(waiting_module, "MOST_BYTES_WAITING", 10)
    waiting = Waiting(100)
    came = [("a", 8), ("b", 8), ("b", 8), ("b", 8), ("b", 1)]
    passed_over = [[o.event for o in waiting.put(entry(name, n, size))] for n, (name, size) in enumerate(came)]
    assert passed_over == [[], [], [], [], [1, 2, 3]]


@pytest.mark.parametrize("newest", [50, 51])
def test_there_is_no_room_once_the_newest_of_all_are_more_than_may_wait(monkeypatch, newest):
    monkeypatch.setattr(waiting_module, "MOST_BYTES_WAITING", 10)
    monkeypatch.setattr(waiting_module, "ROOM_BYTES", 100)
    waiting = Waiting(100)
    waiting.put(entry("a", 0, 50))
    for number in range(10):
        waiting.put(entry("b", number, 50))
        assert waiting.has_room, "what a newer one follows makes room"
    waiting.put(entry("b", 10, newest))
    assert waiting.has_room is (newest == 50)
    waiting.take()
    assert waiting.has_room
    waiting.put(entry("c", 0, 1000))
    assert not waiting.has_room
    waiting.clear()
    assert waiting.has_room


def test_what_went_before_it_was_heard_of_is_passed_over_and_what_was_heard_of_is_not():
    waiting = Waiting(2)
    waiting.put(entry("a"))
    waiting.take()
    waiting.put(entry("-a"))
    waiting.put(entry("b"))
    assert [one.subject for one in waiting.put(entry("-b"))] == ["b", "b"]
    assert [(one.subject, one.is_end) for one in taken(waiting)] == [("a", True)]


def test_nothing_is_remembered_after_it_was_cleared():
    waiting = Waiting(1)
    waiting.put(entry("a"))
    waiting.take()
    waiting.clear()
    waiting.put(entry("b"))
    assert [one.subject for one in waiting.put(entry("-a"))] == ["a"]
    assert waiting.first == entry("b")


@given(STEPS, st.integers(1, 5))
@example(["a", "a", "-a", "take", "take", "a", "a", "-a"], 1)
def test_whatever_comes_nothing_is_reordered_doubled_or_other_than_it_is_in_the_end(steps, most):
    waiting, came, seen, passed_over = Waiting(most), [], [], []
    for number, step in enumerate(steps):
        if step != "take":
            came.append(entry(step, number))
            passed_over += waiting.put(came[-1])
            # Two subjects, each of which may be there or have to be heard to be gone.
            assert len(waiting) <= max(most, 2 * 2)
        elif len(waiting):
            seen.append(waiting.take())
    seen += taken(waiting)
    numbers = [one.event for one in seen]
    assert numbers == sorted(set(numbers))
    assert sorted(numbers + [one.event for one in passed_over]) == [one.event for one in came]
    for subject in "ab":
        last, told = ([one for one in some if one.subject == subject][-1:] for some in (came, seen))
        # What came and went unheard of is as good as what never was: it was not there, and is not.
        assert told == last or (last[0].is_end and (not told or told[0].is_end))


def test_what_was_lost_is_named_until_a_newer_event_or_time_mends_it():
    lost = Lost()
    lost.note("a", 0.0)
    lost.note("b", 1.0)
    lost.note("a", 2.0)
    assert lost.subjects(3.0) == ("b", "a")
    lost.mend("a")
    assert lost.subjects(LOST_SHOWN_S + 0.9) == ("b",)
    assert lost.subjects(LOST_SHOWN_S + 1.0) == ()


@pytest.mark.parametrize("count", [MOST_NAMED, MOST_NAMED + 1])
def test_names_of_what_was_lost_are_bounded(count):
    lost = Lost()
    for number in range(count):
        lost.note(str(number), 0.0)
    assert lost.subjects(0.0) == tuple(str(number) for number in range(count - MOST_NAMED, count))
