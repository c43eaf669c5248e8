"""The instance table: forward only, always ends, stops may be said by several."""

import pytest
from hotbay.rollout.lifecycle import TABLE, IllegalTransition, InstanceEvent, InstanceState, advance
from hypothesis import given
from hypothesis import strategies as st

RANK = list(InstanceState)
E, S = InstanceEvent, InstanceState


def run(*events: InstanceEvent) -> InstanceState:
    state = S.NEW
    for event in events:
        state = advance(state, event)
    return state


def test_orderly_life() -> None:
    assert run(E.LAUNCHED) is S.STARTING
    assert run(E.LAUNCHED, E.PLUGIN_READY) is S.CONFIGURING
    assert run(E.LAUNCHED, E.PLUGIN_READY, E.CONFIGURED) is S.READY
    assert run(E.LAUNCHED, E.PLUGIN_READY, E.CONFIGURED, E.RETIRE) is S.DRAINING
    assert run(E.LAUNCHED, E.PLUGIN_READY, E.CONFIGURED, E.RETIRE, E.TERMINATE, E.KILL, E.EXITED) is S.EXITED


def test_no_way_leads_back() -> None:
    assert all(RANK.index(after) >= RANK.index(before) for (before, _), after in TABLE.items())


def test_every_state_can_end() -> None:
    assert all((state, E.EXITED) in TABLE for state in S)


def test_l23_stops_of_several_and_a_kill_from_outside_end_once() -> None:
    stops = (E.RETIRE, E.RETIRE, E.TERMINATE, E.EXITED, E.RETIRE, E.TERMINATE, E.KILL)
    assert run(E.LAUNCHED, E.PLUGIN_READY, E.CONFIGURED, *stops) is S.EXITED


@pytest.mark.parametrize(
    ("state", "event"),
    [(S.NEW, E.PLUGIN_READY), (S.NEW, E.CONFIGURED), (S.STARTING, E.CONFIGURED), (S.READY, E.PLUGIN_READY)],
)
def test_what_cannot_happen_is_our_own_fault(state: InstanceState, event: InstanceEvent) -> None:
    with pytest.raises(IllegalTransition, match=f"{event.name} in {state.name}"):
        advance(state, event)


@given(st.lists(st.sampled_from([E.RETIRE, E.TERMINATE, E.KILL, E.EXITED])))
def test_whatever_is_done_to_a_ready_instance_is_legal(events: list[InstanceEvent]) -> None:
    state = run(E.LAUNCHED, E.PLUGIN_READY, E.CONFIGURED, *events)
    assert (state is S.EXITED) == (E.EXITED in events)
