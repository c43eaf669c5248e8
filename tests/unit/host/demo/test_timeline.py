"""Lives of generations, from pages."""

from collections.abc import Callable

from hotbay.demo.gauges import HostStatus
from hotbay.demo.timeline import Timeline

MakeStatus = Callable[..., HostStatus]


def spans(timeline: Timeline) -> list[tuple[str, int, float, float | None]]:
    return [(life.plugin, life.generation, life.from_s, life.to_s) for life in timeline.lives]


def test_a_swap_ends_one_life_and_begins_another(make_status: MakeStatus):
    timeline = Timeline()
    timeline.note(0.0, make_status(a={}, b={"generation": 2, "pid": 200}))
    events = timeline.note(
        5.0, make_status(a={"generation": 3, "pid": 300, "version": "2.0.0"}, b={"generation": 2, "pid": 200})
    )

    assert spans(timeline) == [("a", 1, 0.0, 5.0), ("b", 2, 0.0, None), ("a", 3, 5.0, None)]
    assert events == ["a: generation 3 (2.0.0 rev 1, pid 300) took over from generation 1 (1.0.0 rev 1)"]


def test_a_death_ends_a_life_before_the_next_begins(make_status: MakeStatus):
    timeline = Timeline()
    timeline.note(0.0, make_status(a={}))
    assert timeline.note(1.0, make_status(a={"pid": None})) == ["a: generation 1 is gone"]
    assert timeline.note(2.0, make_status(a={"pid": None})) == []
    assert timeline.note(3.0, make_status(a={"generation": 2, "pid": 200})) == [
        "a: generation 2 (1.0.0 rev 1, pid 200) answers"
    ]

    assert spans(timeline) == [("a", 1, 0.0, 1.0), ("a", 2, 3.0, None)]


def test_equal_pages_change_nothing(make_status: MakeStatus):
    timeline = Timeline()
    timeline.note(0.0, make_status(a={}))

    assert timeline.note(1.0, make_status(a={"restarts": 5, "phase": "staging"})) == []
    assert spans(timeline) == [("a", 1, 0.0, None)]
