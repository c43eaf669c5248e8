"""What a situation is in HTTP, where nobody typed it: the scheduler's own faults are 500 and cost no other request anything."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.gateway.answers import typed_refusal
from hotbay.scheduling.builtin import PICKERS
from hotbay.scheduling.decision import Picked, Rejected

IDLE = Metrics(waiting=0.0)


def test_untyped_failure_of_the_scheduler_is_500_and_not_429_and_the_next_request_is_decided(
    in_loop: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference answers 429, which tells clients to come again."""

    def fails(totals: object, mask: object, count: int, rng: np.random.Generator, tie: float = 0.0) -> Sequence[int]:
        raise ZeroDivisionError

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        bay.publish()
        with monkeypatch.context() as patched:
            patched.setitem(PICKERS, "random-picker", fails)
            bay.builtin("random-picker")
            bay.publish("random-picker")
            (answer,) = await bay.decide()
        assert isinstance(answer, Rejected)
        assert (answer.status, answer.reason) == (500, "scheduler-error")
        refused = typed_refusal(answer.status, answer.reason, answer.message).answer()
        headers = dict(refused.headers)
        assert headers[b"x-llm-d-request-dropped-reason"] == b"scheduler-error"
        assert b"retry-after" not in headers
        bay.refs = []
        bay.publish()
        assert isinstance((await bay.decide())[0], Picked)

    in_loop(body)
