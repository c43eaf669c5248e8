"""The table of host calls: what is granted acts, what is sent is checked, what is too much is refused."""

from collections.abc import Callable, Sequence

import pytest
from hotbay.capabilities import CAPABILITIES, capability_of
from hotbay.errors import CapacityError
from hotbay.rpc.host_calls import (
    CALLS_AT_ONCE,
    CALLS_PER_S,
    ENTROPY_PER_CALL_BYTES,
    LOGS_AT_ONCE,
    LOGS_PER_S,
    MAX_ENTROPY_BYTES,
    MAX_FIELD_CHARS,
    MAX_FIELDS,
    MAX_KEY_CHARS,
    MAX_LABELS,
    MAX_NAME_CHARS,
    MAX_TEXT_CHARS,
    MAX_VALUE_BYTES,
    ROWS_PER_CALL,
    HostCall,
    HostCalls,
    HostServices,
)
from hotbay.rpc.host_services import MAX_ENTRIES, MemoryStorage
from hotbay_sdk.protocol import METHODS, CallError, ErrorCode, Method, Value
from hypothesis import given
from hypothesis import strategies as st

HOST_METHODS = [Method(number) for number, spec in METHODS.items() if not spec.by_host]
FREE = [Method.LOG, Method.NOW, Method.RANDOM]
ALL = tuple(CAPABILITIES)


class Desk:
    """A host with everything to lend, and what it answered."""

    def __init__(self, *grants: str, services: HostServices | None = None) -> None:
        self.now = 100.0
        self.heard: list[object] = []
        self.storage = MemoryStorage(1000)
        lent = services or HostServices(
            storage=self.storage,
            metric=lambda *told: self.heard.append(told),
            secrets={"token": "hunter2"},
            dial=lambda host, port, call: call.reply(f"{host}:{port}"),
            endpoints=lambda: [{"id": "a"}],
            recycle=self.heard.append,
            wall=lambda: 1.5e9,
            entropy=bytes,
        )
        self.calls = HostCalls("p", "p#1", grants, lent, now=lambda: self.now)

    def ask(self, method: int, *args: Value) -> object:
        """The answer: a value, or a `CallError`."""
        answers: list[object] = []

        def answer(call: HostCall, outcome: object, descriptors: Sequence[int]) -> None:
            answers.append(outcome)

        self.calls.serve(HostCall(2, method, args, parent=0, deadline_s=200.0, answer=answer))
        (answered,) = answers
        return answered


GOOD: dict[Method, tuple[tuple[Value, ...], Value]] = {
    Method.LOG: (("info", "text", {"n": 1}), None),
    Method.METRIC: (("blocks", 2, {"kind": "hit"}), None),
    Method.STORAGE_GET: (("k",), None),
    Method.STORAGE_PUT: (("k", b"v"), None),
    Method.SECRET: (("token",), "hunter2"),
    Method.DIAL: (("db.example", 5432), "db.example:5432"),
    Method.ENDPOINTS: ((), [{"id": "a"}]),
    Method.RECYCLE: (("leaks",), None),
    Method.NOW: ((), 1.5e9),
    Method.RANDOM: ((4,), bytes(4)),
}


def code_of(answer: object) -> ErrorCode:
    assert isinstance(answer, CallError), answer
    return answer.code


@pytest.mark.parametrize("method", HOST_METHODS)
def test_each_call_acts_with_the_capability_that_it_needs(method: Method) -> None:
    args, expected = GOOD[method]
    capability = capability_of(method)
    assert (capability is None) == (method in FREE)
    assert Desk(*([capability] if capability else [])).ask(method, *args) == expected


@pytest.mark.parametrize("method", [m for m in HOST_METHODS if m not in FREE])
def test_no_call_acts_with_all_other_capabilities_and_what_to_type_is_told(method: Method) -> None:
    capability = capability_of(method)
    assert capability is not None
    others = [name for name in CAPABILITIES if name != capability]
    for grants in (others, [], ["host_calls", "everything"]):
        desk = Desk(*grants)
        answer = desk.ask(method, *GOOD[method][0])
        assert isinstance(answer, CallError)
        assert (answer.code, answer.details) == (ErrorCode.UNAVAILABLE, {"grant": capability})
        # The command allows what it names alone, so it names what was granted before as well.
        assert f"`hotbay grant p {' '.join(sorted([capability, *grants]))}`" in answer.message
        assert desk.heard == []


@pytest.mark.parametrize("method", [m for m in HOST_METHODS if m not in (Method.LOG,)])
def test_what_a_host_does_not_have_is_unavailable_though_granted(method: Method) -> None:
    desk = Desk(*ALL, services=HostServices())
    answer = desk.ask(method, *GOOD[method][0])
    assert code_of(answer) is ErrorCode.UNAVAILABLE
    assert "grant" in answer.details


def test_secret_of_another_name_is_told_from_a_host_without_any() -> None:
    answer = Desk(*ALL).ask(Method.SECRET, "other")
    assert (code_of(answer), answer.details) == (ErrorCode.UNAVAILABLE, {})


@pytest.mark.parametrize("method", [Method.RUN, Method.CONFIGURE, 0, 49, 60, 2**31])
def test_methods_that_are_no_host_calls_are_refused(method: int) -> None:
    assert code_of(Desk(*ALL).ask(method)) is ErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize(
    ("method", "args"),
    [
        (Method.LOG, ("fatal", "text", {})),
        (Method.LOG, ("info", b"text", {})),
        (Method.LOG, ("info", "text", [])),
        (Method.METRIC, ("no name", 1, {})),
        (Method.METRIC, ("a" * 65, 1, {})),
        (Method.METRIC, ("a", -1, {})),
        (Method.METRIC, ("a", float("nan"), {})),
        (Method.METRIC, ("a", True, {})),
        (Method.METRIC, ("a", 1, {str(n): "" for n in range(9)})),
        (Method.METRIC, ("a", 1, {"k": 1})),
        (Method.METRIC, ("a", 1, {"plugin": "p"})),
        (Method.METRIC, ("a", 1, {"__name__": "p"})),
        (Method.METRIC, ("a", 1, {"größe": "p"})),
        (Method.LOG, ("info", "text", {str(n): n for n in range(MAX_FIELDS + 1)})),
        (Method.METRIC, ("a", 1, {"k": "v" * 65})),
        (Method.STORAGE_GET, ("",)),
        (Method.STORAGE_GET, ("k" * (MAX_KEY_CHARS + 1),)),
        (Method.STORAGE_GET, (b"k",)),
        (Method.STORAGE_PUT, ("k", "text")),
        (Method.DIAL, ("", 1)),
        (Method.DIAL, ("h", 0)),
        (Method.DIAL, ("h", 65536)),
        (Method.DIAL, ("h", True)),
        (Method.RANDOM, (0,)),
        (Method.RANDOM, (MAX_ENTROPY_BYTES + 1,)),
        (Method.RANDOM, ("4",)),
        (Method.NOW, (1,)),
        (Method.STORAGE_PUT, ("k",)),
    ],
)
def test_bad_arguments_are_told_and_nothing_acts(method: Method, args: tuple[Value, ...]) -> None:
    desk = Desk(*ALL)
    assert code_of(desk.ask(method, *args)) is ErrorCode.BAD_RESULT
    assert desk.heard == []


@given(
    st.sampled_from(HOST_METHODS),
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers(-5, 2**64 - 1) | st.floats() | st.text() | st.binary(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=8,
        ),
        max_size=4,
    ),
)
def test_whatever_is_sent_is_answered_once_and_raises_nothing(method: Method, args: list[Value]) -> None:
    Desk(*ALL).ask(method, *args)


def test_answers_of_another_hosts_codes_cross_as_unavailable() -> None:
    def dial(host: str, port: int, call: HostCall) -> None:
        raise CapacityError("SOMETHING_ELSE", "no")

    desk = Desk(*ALL, services=HostServices(dial=dial))
    assert code_of(desk.ask(Method.DIAL, "h", 1)) is ErrorCode.UNAVAILABLE


def test_calls_are_bounded_at_once_and_for_ever() -> None:
    desk = Desk(*ALL)
    for _ in range(CALLS_AT_ONCE):
        assert desk.ask(Method.NOW) == 1.5e9
    assert code_of(desk.ask(Method.NOW)) is ErrorCode.RESOURCE_EXHAUSTED
    desk.now += 1 / CALLS_PER_S
    assert desk.ask(Method.NOW) == 1.5e9
    assert code_of(desk.ask(Method.NOW)) is ErrorCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("method", "args", "cost"),
    [
        (Method.RANDOM, (ENTROPY_PER_CALL_BYTES - 1,), 1),
        (Method.RANDOM, (MAX_ENTROPY_BYTES,), 1 + MAX_ENTROPY_BYTES // ENTROPY_PER_CALL_BYTES),
        (Method.ENDPOINTS, (), 1 + 10),
    ],
)
def test_answers_that_take_long_count_for_more(method: Method, args: tuple[Value, ...], cost: int) -> None:
    rows = [{"id": str(n)} for n in range(10 * ROWS_PER_CALL)]
    desk = Desk(*ALL, services=HostServices(endpoints=lambda: rows, entropy=bytes))
    answered = 0
    while not isinstance(desk.ask(method, *args), CallError):
        answered += 1
    assert answered == CALLS_AT_ONCE // cost


def test_more_endpoints_than_can_ever_be_paid_for_are_given_from_a_full_allowance() -> None:
    rows = [{"id": str(n)} for n in range((CALLS_AT_ONCE + 5) * ROWS_PER_CALL)]
    desk = Desk(*ALL, services=HostServices(endpoints=lambda: rows))
    assert desk.ask(Method.ENDPOINTS) == rows
    assert code_of(desk.ask(Method.ENDPOINTS)) is ErrorCode.RESOURCE_EXHAUSTED
    desk.now += 2 * CALLS_AT_ONCE / CALLS_PER_S
    assert desk.ask(Method.ENDPOINTS) == rows


def test_process_asks_for_its_successor_once() -> None:
    desk = Desk("recycle")
    assert [desk.ask(Method.RECYCLE, reason) for reason in ("leaks", "again")] == [None, None]
    assert desk.heard == ["leaks"]


def test_log_is_bounded_and_says_what_it_left_out(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    with caplog.at_level("INFO", "hotbay.rpc.host_calls"):
        for _ in range(LOGS_AT_ONCE + 7):
            assert desk.ask(Method.LOG, "info", "text", {}) is None
        assert len(caplog.records) == LOGS_AT_ONCE
        desk.now += 1.5 / LOGS_PER_S
        assert desk.ask(Method.LOG, "warning", "x" * (MAX_TEXT_CHARS + 1), {"k": "v" * (MAX_FIELD_CHARS + 1)}) is None
    dropped, last = caplog.records[LOGS_AT_ONCE:]
    assert dropped.getMessage() == "plugin_log_dropped plugin=p#1 records=7"
    assert f"message='{'x' * MAX_TEXT_CHARS}' fields={{'k': '{'v' * MAX_FIELD_CHARS}'}}" in last.getMessage()


def test_labels_and_fields_up_to_their_bounds_are_taken() -> None:
    desk = Desk("metric")
    labels: Value = {f"k{n}": "v" * MAX_NAME_CHARS for n in range(MAX_LABELS)}
    assert desk.ask(Method.METRIC, "a" * MAX_NAME_CHARS, 0, labels) is None
    assert desk.ask(Method.LOG, "info", "", {str(n): n for n in range(MAX_FIELDS)}) is None


# -- storage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "code"), [(MAX_VALUE_BYTES, None), (MAX_VALUE_BYTES + 1, "RESOURCE_EXHAUSTED")])
def test_a_stored_value_is_bounded_on_both_sides(size: int, code: str | None) -> None:
    desk = Desk(*ALL, services=HostServices(storage=MemoryStorage(10**6)))
    answer = desk.ask(Method.STORAGE_PUT, "k", bytes(size))
    assert (None if answer is None else code_of(answer)) == code


def test_the_quota_counts_keys_and_values_and_is_given_back() -> None:
    storage = MemoryStorage(10)
    storage.put("ab", b"12345678")
    with pytest.raises(CapacityError):
        storage.put("c", b"")
    storage.put("ab", b"1234567")
    storage.put("c", b"")
    storage.put("ab", None)
    storage.put("ab", None)
    assert (storage.get("ab"), storage.get("c")) == (None, b"")
    storage.put("d", b"12345678")


def test_keys_are_bounded_whatever_they_weigh() -> None:
    storage = MemoryStorage()
    for number in range(MAX_ENTRIES):
        storage.put(str(number), b"")
    with pytest.raises(CapacityError):
        storage.put("one more", b"")
    storage.put("0", b"changed")
    storage.put("0", None)
    storage.put("one more", b"")
    assert len(storage) == MAX_ENTRIES


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.binary(max_size=6)), max_size=30))
def test_storage_is_a_map_within_its_quota(steps: list[tuple[str, bytes | None]]) -> None:
    storage, model, quota = MemoryStorage(12), dict[str, bytes](), 12
    for key, value in steps:
        after = {k: v for k, v in model.items() if k != key} | ({} if value is None else {key: value})
        fits = sum(len(k) + len(v) for k, v in after.items()) <= quota
        change: Callable[[], None] = lambda k=key, v=value: storage.put(k, v)  # noqa: E731  # bound here
        if fits:
            change()
            model = after
        else:
            with pytest.raises(CapacityError):
                change()
        assert {k: storage.get(k) for k in "abc"} == {k: model.get(k) for k in "abc"}
