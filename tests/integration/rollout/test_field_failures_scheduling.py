"""Field failures of scheduling through a whole host: a scorer in a process of its own that keeps its callers waiting."""

import anyio
import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(90)]

BUDGET = "bindings: {sample: {deadline: 20ms}}\n"
REQUESTS = 100
"""Those of the case's one second."""


async def test_s44_scorer_far_beyond_its_budget_is_waited_for_once_and_counts_again_when_it_is_fast(
    host, text, packages, tmp_path
):
    """In place of a second it takes until the test says so: decisions that waited for its answer would wait for ever."""
    slow, entered = tmp_path / "slow", tmp_path / "entered"
    waits = f"open({str(entered)!r}, 'a').close()\n        while os.path.exists({str(slow)!r}): time.sleep(0.01)"
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", score=waits))
    async with host(config=BUDGET) as bay:
        await bay.wait_for(lambda: bay.live())
        slow.touch()
        answers = [await bay.client.chat() for _ in range(REQUESTS)]
        assert [answer.status for answer in answers] == [200] * REQUESTS
        degraded = bay.degraded()
        assert set(degraded) <= {("sample", "DEADLINE_EXCEEDED"), ("sample", "BREAKER_OPEN")}
        assert sum(degraded.values()) == REQUESTS, "each was decided without it"
        assert {answer.text for answer in answers} == {"v1", "v2"}, "and by nobody's preference"
        [(broken, said)] = bay.host._router.broken()
        assert (broken, "DEADLINE_EXCEEDED" in said) == ("sample", True)
        assert entered.exists()
        # One decision waited out its budget; the others found that the process has a call that it does not answer.
        assert bay.host._router.statistics(bay.live()["generation"]).latencies.count == 1
        slow.unlink()
        assert await _answer_with_the_scorers_word(bay) == "v1"
        assert bay.host._router.broken() == []
        assert bay.plugin()["restarts"] == 0


async def _answer_with_the_scorers_word(bay) -> str:
    with anyio.fail_after(30):
        while True:
            before = bay.degraded_count()
            answer = await bay.client.chat()
            if bay.degraded_count() == before:
                return answer.text
