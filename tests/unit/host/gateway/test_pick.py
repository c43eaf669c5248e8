"""The table of unsettled picks against a plain model of it."""

import tracemalloc

from hotbay.gateway.outcome import Outcome
from hotbay.gateway.pick import PickTable, outcome_of
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.tuples(st.sampled_from(["hold", "settle", "expire"]), st.integers(0, 5)), max_size=60))
def test_every_pick_leaves_exactly_once(steps):
    table = PickTable(3.0, 1000)
    model: dict[str, float] = {}
    left: list[str] = []
    now = 0.0
    for number, (step, value) in enumerate(steps):
        if step == "hold":
            table.hold(str(number), f"e{number}", now)
            model[str(number)] = now + 3.0
        elif step == "settle":
            pick = list(model)[value] if value < len(model) else "unknown"
            endpoint = table.settle(pick)
            assert endpoint == (f"e{pick}" if pick in model else None)
            if model.pop(pick, None) is not None:
                left.append(f"e{pick}")
        else:
            now += value
            due = [pick for pick, end in model.items() if end <= now]
            assert table.expire(now) == [f"e{pick}" for pick in due]
            left += [f"e{model.pop(pick) and pick}" for pick in due]
        assert len(table) == len(model)
    assert len(left) == len(set(left))


def test_settled_picks_take_no_memory_while_an_older_one_is_unsettled():
    table = PickTable(60.0, 1000)
    table.hold("first", "e", 0.0)
    tracemalloc.start()
    for number in range(20_000):
        table.hold(str(number), "e", 0.0)
        table.settle(str(number))
    grown_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(table) == 1
    assert grown_bytes < 100_000


def test_full_at_its_capacity():
    table = PickTable(3.0, 1)
    assert not table.full
    table.hold("a", "e", 0.0)
    assert table.full


def test_outcomes_by_name():
    assert outcome_of("timeout") is Outcome.TIMEOUT
    assert outcome_of("great") is None
    assert outcome_of(None) is None
