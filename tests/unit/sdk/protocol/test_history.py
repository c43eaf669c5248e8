"""After any history of calls, answers, cancels, overtakings and ends, no table holds anything.

Hypothesis draws the histories; the model beside the two ends is a dictionary of what each call is owed.
"""

import pytest
from hotbay_sdk.protocol import (
    CallError,
    CallLimitError,
    CallReceived,
    CancelReceived,
    Connection,
    ErrorCode,
    ErrorReceived,
    LateAnswerDropped,
    LinkState,
    Method,
    ReplyReceived,
    Role,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

LIMIT = 6
pick = st.integers(0, 2**16)


class LinkHistory(RuleBasedStateMachine):
    """Two ends, each both caller and callee, with bytes in flight each way that arrive in any pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        """A fresh link."""
        self.ends = {role: Connection(role, max_outstanding=LIMIT) for role in Role}
        self.wire = {role: bytearray() for role in Role}
        self.waiting: dict[Role, dict[int, int]] = {role: {} for role in Role}
        self.cancelled: dict[Role, set[int]] = {role: set() for role in Role}
        self.serving: dict[Role, list[int]] = {role: [] for role in Role}
        self.made = 0

    @staticmethod
    def other(role: Role) -> Role:
        return Role.PLUGIN if role is Role.HOST else Role.HOST

    @rule(role=st.sampled_from(list(Role)), limit=st.sampled_from([4, 100]))
    def call(self, role: Role, limit: int) -> None:
        owed = len(self.waiting[role]) + len(self.cancelled[role])
        try:
            stream, data = self.ends[role].start_call(Method.RUN, [self.made], deadline_us=1, reply_limit_bytes=limit)
        except CallLimitError:
            assert owed == LIMIT
        else:
            assert owed < LIMIT
            self.waiting[role][stream] = limit
            self.wire[role] += data
            self.made += 1

    @rule(role=st.sampled_from(list(Role)), which=pick, overtakes=st.booleans())
    def cancel(self, role: Role, which: int, overtakes: bool) -> None:
        if not self.waiting[role]:
            return
        stream = sorted(self.waiting[role])[which % len(self.waiting[role])]
        data = self.ends[role].cancel(stream, "why")
        del self.waiting[role][stream]
        self.cancelled[role].add(stream)
        if overtakes and not self.ends[self.other(role)].mid_frame:
            self.take(self.other(role), data)
        else:
            self.wire[role] += data

    @rule(role=st.sampled_from(list(Role)), which=pick, size=st.integers(0, 20), fails=st.booleans())
    def answer(self, role: Role, which: int, size: int, fails: bool) -> None:
        if not self.serving[role]:
            return
        stream = self.serving[role].pop(which % len(self.serving[role]))
        end = self.ends[role]
        error = CallError(ErrorCode.PLUGIN_ERROR, "no")
        self.wire[role] += end.send_error(stream, error) if fails else end.send_reply(stream, [stream, b"x" * size])

    @rule(role=st.sampled_from(list(Role)), size=st.integers(1, 60))
    def deliver(self, role: Role, size: int) -> None:
        data = bytes(self.wire[role][:size])
        del self.wire[role][:size]
        self.take(self.other(role), data)

    def take(self, role: Role, data: bytes) -> None:
        for event in self.ends[role].feed(data):
            match event:
                case CallReceived(stream):
                    self.serving[role].append(stream)
                case CancelReceived(stream):
                    assert stream in self.serving[role]
                case ReplyReceived(stream, result):
                    assert isinstance(result, list)
                    assert result[0] == stream
                    del self.waiting[role][stream]
                case ErrorReceived(stream):
                    del self.waiting[role][stream]
                case LateAnswerDropped(stream):
                    self.cancelled[role].remove(stream)
                case _:
                    pytest.fail(f"unexpected {event}")

    def settle(self) -> None:
        """Deliver all that is under way and answer all that is owed."""
        for _ in range(2):
            for role in Role:
                self.deliver(role, len(self.wire[role]) or 1)
            for role in Role:
                while self.serving[role]:
                    self.answer(role, 0, 1, fails=False)
            for role in Role:
                self.deliver(role, len(self.wire[role]) or 1)

    @rule()
    def all_is_answered(self) -> None:
        self.settle()
        assert not any(self.waiting.values())
        assert not any(self.cancelled.values())
        for end in self.ends.values():
            assert not any(end.table_sizes.values())

    @rule()
    def close(self) -> None:
        for role, end in self.ends.items():
            assert set(end.close()) == set(self.waiting[role])
            assert not any(end.table_sizes.values())
        self.begin()

    @invariant()
    def the_ends_agree_with_the_model(self) -> None:
        for role, end in self.ends.items():
            assert set(end.pending) == set(self.waiting[role])
            assert end.state is LinkState.OPEN
            assert end.outstanding == len(self.waiting[role]) + len(self.cancelled[role])
            assert end.serving == len(self.serving[role])
            assert end.table_sizes["early_cancels"] <= LIMIT

    def teardown(self) -> None:
        self.all_is_answered()


TestLinkHistory = LinkHistory.TestCase
TestLinkHistory.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
