"""Bindings of sessions to endpoints: how they begin, move and end."""

from contextlib import suppress

import pytest
from hotbay_session.bindings import MAX_PENDING, MAX_SESSIONS, Bindings, StateRefusedError
from hypothesis import given
from hypothesis import strategies as st

IDS = ("a", "b", "c")


def bindings(now: float = 0.0) -> Bindings:
    """Time to live 300 s, a sweep each 10 s."""
    made = Bindings(ttl_s=300, sweep_s=10)
    made.follow(IDS, now)
    return made


@pytest.mark.parametrize(("now", "bound"), [(299.9, "a"), (300.0, "")])
def test_a_binding_that_nobody_uses_ends_with_a_sweep_after_its_time(now: float, bound: str) -> None:
    made = bindings()
    made.bind("s", "a", "r", 0.0)
    made.follow(IDS, now)
    assert made.endpoint_of("s") == bound


def test_an_overdue_binding_holds_until_the_next_sweep() -> None:
    made = bindings()
    made.bind("s", "a", "r", 0.0)
    made.follow(IDS, 295.0)
    made.follow(IDS, 304.9)
    assert made.endpoint_of("s") == "a"
    made.follow(IDS, 305.0)
    assert made.endpoint_of("s") == ""


def test_use_keeps_a_binding_and_a_look_does_not() -> None:
    made = bindings()
    made.bind("used", "a", "r1", 0.0)
    made.bind("seen", "b", "r2", 0.0)
    made.bind("used", "a", "r3", 200.0)
    made.endpoint_of("seen")
    made.follow(IDS, 310.0)
    assert (made.endpoint_of("used"), made.endpoint_of("seen"), len(made)) == ("a", "", 1)


@pytest.mark.parametrize(
    ("present", "moves"), [(True, False), (False, True), (None, False)], ids=["seen", "absent", "not asked"]
)
def test_a_bound_session_moves_only_if_its_endpoint_was_no_candidate(present: bool | None, moves: bool) -> None:
    made = bindings()
    made.bind("s", "a", "r1", 0.0)
    if present is not None:
        made.seen("r2", present=present)
    made.bind("s", "b", "r2", 1.0)
    assert made.endpoint_of("s") == ("b" if moves else "a")


def test_what_was_seen_of_a_request_counts_once() -> None:
    made = bindings()
    made.bind("s", "a", "r1", 0.0)
    made.seen("r2", present=False)
    made.bind("s", "b", "r2", 1.0)
    made.bind("s", "c", "r2", 2.0)
    assert made.endpoint_of("s") == "b"


def test_requests_that_are_never_sent_are_forgotten() -> None:
    made = bindings()
    made.bind("s", "a", "r", 0.0)
    made.bind("t", "a", "r", 0.0)
    made.seen("first", present=False)
    made.seen("second", present=False)
    for number in range(MAX_PENDING - 1):
        made.seen(str(number), present=False)
    made.bind("s", "b", "first", 1.0)
    made.bind("t", "b", "second", 1.0)
    assert (made.endpoint_of("s"), made.endpoint_of("t")) == ("a", "b")


def test_s21_bindings_to_endpoints_that_went_end() -> None:
    made = bindings()
    for session, endpoint in (("s", "a"), ("t", "b"), ("u", "a")):
        made.bind(session, endpoint, "r", 0.0)
    made.follow(("", "b", "c"), 1.0)
    assert made.per_endpoint == {"b": 1}
    made.follow(IDS, 2.0)
    assert made.endpoint_of("s") == ""


def test_sessions_are_bounded_and_the_one_used_longest_ago_goes() -> None:
    made = bindings()
    for number in range(MAX_SESSIONS):
        made.bind(str(number), "a", "", 0.0)
    made.bind("0", "a", "", 1.0)
    made.bind("new", "b", "", 1.0)
    assert len(made) == MAX_SESSIONS
    assert [made.endpoint_of(session) for session in ("0", "1", "2", "new")] == ["a", "", "a", "b"]


def test_long_ids_are_told_apart_and_not_kept() -> None:
    made = bindings()
    made.bind("x" * 100_000, "a", "", 0.0)
    made.bind("x" * 99_999 + "y", "b", "", 0.0)
    assert (made.endpoint_of("x" * 100_000), made.endpoint_of("x" * 99_999 + "y")) == ("a", "b")
    assert len(b"".join(made.pieces(0.0))) < 500


@pytest.mark.parametrize(("session", "endpoint"), [("", "a"), ("s", "")])
def test_nobody_is_bound_to_nothing(session: str, endpoint: str) -> None:
    made = bindings()
    made.bind(session, endpoint, "r", 0.0)
    made.unbind(session, endpoint)
    assert (len(made), made.endpoint_of(session)) == (0, "")


def test_age_moves_along() -> None:
    made, moved = bindings(), Bindings(ttl_s=300, sweep_s=10)
    made.bind("old", "a", "", 0.0)
    made.bind("new", "b", "", 250.0)
    moved.restore(made.pieces(290.0), 1000.0)
    moved.follow(IDS, 1000.0)
    moved.follow(IDS, 1010.0)
    assert (moved.endpoint_of("old"), moved.endpoint_of("new")) == ("", "b")


texts = st.text(max_size=6)


@given(st.lists(st.tuples(texts, st.sampled_from(IDS))), st.integers(1, 9))
def test_bindings_are_the_same_after_the_move_however_their_bytes_are_cut(
    bound: list[tuple[str, str]], size: int
) -> None:
    made, moved = bindings(), bindings()
    for session, endpoint in bound:
        made.bind(session, endpoint, "", 5.0)
    whole = b"".join(made.pieces(7.0))
    moved.restore([whole[i : i + size] for i in range(0, len(whole), size)], 7.0)
    assert moved.per_endpoint == made.per_endpoint
    assert all(moved.endpoint_of(session) == made.endpoint_of(session) for session, _ in bound)


@given(st.binary(max_size=60) | st.sampled_from([b"[]", b'["a", "b"]', b'["a", "b", "c"]', b"5", b"[" * 9999]))
def test_other_bytes_are_refused_and_change_nothing(data: bytes) -> None:
    made = bindings()
    made.bind("s", "a", "", 0.0)
    with suppress(StateRefusedError):
        made.restore([data], 1.0)
    assert made.endpoint_of("s") == "a"


actions = st.lists(
    st.tuples(st.sampled_from(["bind", "unbind"]), st.sampled_from("stu"), st.sampled_from(IDS), st.integers(0, 40))
    | st.tuples(st.just("follow"), st.just(""), st.sampled_from(["abc", "ab", "c"]), st.integers(0, 40)),
    max_size=30,
)


@given(actions)
def test_bindings_agree_with_a_plain_map(history: list[tuple[str, str, str, int]]) -> None:
    made, now, swept = Bindings(ttl_s=100, sweep_s=30), 0.0, 0.0
    made.follow(IDS, now)
    model: dict[str, tuple[str, float]] = {}
    members = "abc"
    for action, session, where, seconds in history:
        now += seconds
        if action == "bind":
            kept = model.get(session)
            model[session] = (kept[0] if kept and kept[0] in members else where, now)
            made.bind(session, where, "", now)
        elif action == "unbind":
            if model.get(session, ("",))[0] == where:
                del model[session]
            made.unbind(session, where)
        else:
            if now - swept >= 30:
                swept = now
                model = {s: binding for s, binding in model.items() if now - binding[1] < 100}
            members = where
            model = {s: binding for s, binding in model.items() if binding[0] in members}
            made.follow(tuple(where), now)
    assert {s: made.endpoint_of(s) for s in "stu"} == {s: model.get(s, ("",))[0] for s in "stu"}
    assert sum(made.per_endpoint.values()) == len(made) == len(model)
