"""Results as TAP: whatever a peer says, a line stays a line and a directive is only ours."""

from hotbay.conformance.verdict import Result, Verdict, tap_lines
from hypothesis import given
from hypothesis import strategies as st


def test_a_kept_rule_is_one_line() -> None:
    assert list(tap_lines(3, Result("a.b", "it holds", Verdict.KEPT))) == ["ok 3 - a.b: it holds"]


def test_a_skipped_rule_says_why() -> None:
    result = Result("a.b", "it holds", Verdict.SKIPPED, "no such thing")
    assert list(tap_lines(1, result)) == ["ok 1 - a.b: it holds # SKIP no such thing"]


def test_a_broken_rule_has_its_reason_and_the_end_of_the_log() -> None:
    log = "\n".join(f"line {number}" for number in range(20))
    lines = list(tap_lines(1, Result("a.b", "it holds", Verdict.BROKEN, 'said "no"\\', log)))
    assert lines[:3] == ["not ok 1 - a.b: it holds", "  ---", '  message: "said \\"no\\"\\\\"']
    assert lines[-2:] == ['    - "line 19"', "  ..."]
    assert len(lines) == 2 + 1 + 1 + 12 + 1


@given(st.text(), st.text(), st.sampled_from(Verdict))
def test_no_text_of_a_peer_makes_a_line_or_a_directive(reason: str, log: str, verdict: Verdict) -> None:
    lines = list(tap_lines(1, Result("a.b", "it # holds", verdict, reason, log)))
    assert all(line.isprintable() for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])
    assert lines[0].startswith(("ok 1 - a.b: it \\# holds", "not ok 1 - a.b: it \\# holds"))
    assert lines[0].count(" # SKIP ") == (1 if verdict is Verdict.SKIPPED else 0)
