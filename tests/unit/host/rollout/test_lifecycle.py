"""The instance table: forward only, always ends, effects in order."""

import pytest
from hotbay.rollout.lifecycle import (
    DEADLINES,
    TABLE,
    Deadlines,
    Effect,
    Event,
    IllegalTransition,
    Instance,
    State,
    step,
)
from hypothesis import given
from hypothesis import strategies as st

WAITING = [State.STARTING, State.CONFIGURING, State.DRAINING, State.TERMINATING, State.KILLING]
# What the outside may do at any moment after the launch, whatever the state.
FROM_OUTSIDE = [Event.STOP, Event.KILL, Event.FAULT, Event.RECYCLE, Event.EXITED, Event.DEADLINE, Event.PLUGIN_READY]


def run(*events: Event, at: float = 0.0) -> tuple[Instance, list[Effect]]:
    instance, effects = Instance(), list[Effect]()
    for event in events:
        instance, new = step(instance, event, at)
        effects += new
    return instance, effects


def at(state: State) -> Instance:
    return Instance(state, DEADLINES.of(state))


def test_orderly_life() -> None:
    instance, effects = run(Event.LAUNCH, Event.PLUGIN_READY, Event.CONFIGURED, Event.STOP, Event.DRAINED, Event.EXITED)
    assert instance == Instance(State.EXITED, None, "stopped")
    assert effects == [
        Effect.START_PROCESS,
        Effect.CONFIGURE,
        Effect.OPEN_LEASES,
        Effect.CLOSE_LEASES,
        Effect.SEND_GOAWAY,
        Effect.REPORT_EXIT,
    ]


def test_hb15_stop_gives_drain_then_grace_then_kill() -> None:
    instance, _ = step(at(State.READY), Event.STOP, 100.0)
    assert instance.deadline == 110.0
    instance, effects = step(instance, Event.DEADLINE, 110.0)
    assert (instance.state, instance.deadline, effects) == (State.TERMINATING, 112.0, (Effect.SEND_SIGTERM,))
    instance, effects = step(instance, Event.DEADLINE, 112.0)
    assert (instance.state, effects) == (State.KILLING, (Effect.KILL_ALL,))
    instance, effects = step(instance, Event.DEADLINE, 117.0)
    assert (instance.state, instance.deadline, effects) == (State.KILLING, 122.0, (Effect.KILL_ALL,))
    assert step(instance, Event.EXITED, 118.0)[0].reason == "stopped"


@pytest.mark.parametrize(("drained_at", "deadline"), [(101.0, 103.0), (109.0, 110.0)])
def test_goaway_leaves_time_to_close_within_the_drain(drained_at: float, deadline: float) -> None:
    instance, _ = step(at(State.READY), Event.STOP, 100.0)
    instance, effects = step(instance, Event.DRAINED, drained_at)
    assert (instance.state, instance.deadline, effects) == (State.DRAINING, deadline, (Effect.SEND_GOAWAY,))


def test_deadline_before_its_time_is_a_late_timer() -> None:
    instance, _ = step(Instance(), Event.LAUNCH, 0.0)
    assert step(instance, Event.DEADLINE, 29.9) == (instance, ())
    assert step(instance, Event.DEADLINE, 30.0)[0].reason == "READY_TIMEOUT"


def test_deadlines_are_arguments() -> None:
    instance, _ = step(Instance(), Event.LAUNCH, 5.0, deadlines=Deadlines(starting_s=1.0))
    assert instance.deadline == 6.0


def test_first_cause_stays() -> None:
    instance, _ = step(at(State.READY), Event.FAULT, 0.0, reason="BAD_RESULT")
    instance, _ = step(instance, Event.EXITED, 0.1, reason="signal 9")
    assert instance == Instance(State.EXITED, None, "BAD_RESULT")


def test_hb14_exit_unasked_closes_leases_and_says_so() -> None:
    instance, effects = step(at(State.READY), Event.EXITED, 0.0)
    assert instance.reason == "exited unasked"
    assert effects == (Effect.CLOSE_LEASES, Effect.REPORT_EXIT)


def test_recycle_asks_for_a_replacement_and_goes_on() -> None:
    assert step(at(State.READY), Event.RECYCLE, 0.0) == (at(State.READY), (Effect.REQUEST_REPLACEMENT,))


@pytest.mark.parametrize(
    ("state", "event"),
    [(State.NEW, Event.EXITED), (State.NEW, Event.FAULT), (State.EXITED, Event.EXITED), (State.STARTING, Event.LAUNCH)],
)
def test_unlisted_pair_is_our_bug(state: State, event: Event) -> None:
    with pytest.raises(IllegalTransition, match=f"{event.name} in {state.name}"):
        step(at(state), event, 0.0)


def test_every_waiting_state_has_a_deadline_and_a_way_out_of_it() -> None:
    assert [state for state in State if DEADLINES.of(state) is not None] == WAITING
    for state in WAITING:
        after, effects = step(Instance(state, 0.0), Event.DEADLINE, 0.0)
        assert effects
        assert after.state.value > state.value or Effect.KILL_ALL in effects
    assert {state for state, event in TABLE if event is Event.DEADLINE} == set(WAITING)


def test_table_goes_forward_only_and_ends_once() -> None:
    for (state, _), transition in TABLE.items():
        assert transition.to.value >= state.value
        assert (Effect.REPORT_EXIT in transition.effects) == (transition.to is State.EXITED is not state)
        assert state is not State.EXITED or not transition.effects


def test_leases_are_closed_whenever_ready_is_left() -> None:
    for (state, _), transition in TABLE.items():
        leaves = state is State.READY and transition.to is not State.READY
        assert (Effect.CLOSE_LEASES in transition.effects) == leaves


def test_nothing_from_outside_is_a_bug_while_the_process_runs() -> None:
    for state in (State.STARTING, State.CONFIGURING, State.READY, *WAITING[2:]):
        for event in FROM_OUTSIDE:
            if (state, event) != (State.STARTING, Event.PLUGIN_READY):
                step(Instance(state, None if state is State.READY else 0.0), event, 0.0)


@given(st.lists(st.tuples(st.sampled_from(Event), st.floats(0, 20)), max_size=30))
def test_any_history_moves_forward_and_ends_by_deadlines_alone(history: list[tuple[Event, float]]) -> None:
    instance, now, exits = Instance(), 0.0, 0
    for event, gap in history:
        now += gap
        if (instance.state, event) not in TABLE and event is not Event.DEADLINE:
            continue
        after, effects = step(instance, event, now)
        assert after.state.value >= instance.state.value
        assert (after.deadline is not None) == (after.state in WAITING)
        assert after.deadline is None or after.deadline >= now or after == instance
        assert not instance.reason or after.reason == instance.reason
        exits += effects.count(Effect.REPORT_EXIT)
        instance = after
    assert exits == (instance.state is State.EXITED)
    killed = 0
    while instance.deadline is not None and killed < 2:
        instance, effects = step(instance, Event.DEADLINE, max(now, instance.deadline))
        killed += effects.count(Effect.KILL_ALL)
    assert instance.state in (State.NEW, State.READY, State.KILLING, State.EXITED)
