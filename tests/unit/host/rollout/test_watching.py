"""What is told of a trial that failed: the figure, what the candidate said, and where to look."""

import pytest
from hotbay.rollout.state import Phase
from hotbay.rollout.verdicts import Ruling, Verdict
from hotbay.rollout.watching import failure_of_verdict

SAID = "PLUGIN_ERROR: KeyError: 'x'"


@pytest.mark.parametrize(
    ("figure", "complaint", "is_told"), [("failures", SAID, True), ("failures", "", False), ("slow_calls", SAID, False)]
)
def test_failure_of_a_trial_says_what_the_candidate_said(figure: str, complaint: str, is_told: bool) -> None:
    verdict = Verdict(Ruling.FAIL, figure, 1.0, 0.0, 0.01)
    failure = failure_of_verdict(Phase.SHADOW, verdict, plugin="my-queue", complaint=complaint)
    assert failure.message.endswith(f"allowed 1.0%; the last one was {SAID}" if is_told else "allowed 1.0%")
    assert "`hotbay logs my-queue`" in failure.hint
