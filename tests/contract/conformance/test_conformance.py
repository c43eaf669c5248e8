"""Every first-party plugin keeps the protocol, a peer without the SDK keeps it too, and each fault turns its rule red."""

import re
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hotbay.conformance.link import Patience
from hotbay.conformance.suite import RULES
from hotbay.conformance.verdict import Result, Verdict
from hotbay.process.launch import LaunchSpec

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
NAMES = sorted(str(file.parent.relative_to(PLUGINS)) for file in PLUGINS.rglob("pyproject.toml"))
# The samples run the same SDK as the others: they are judged where time is.
PROJECTS = [pytest.param(name, marks=[pytest.mark.slow] if name.startswith("samples/") else []) for name in NAMES]
HURRIED = Patience(answer_s=1.0, ready_s=2.0, exit_s=1.0)
"""For peers that are at fault: what they do not do, they do not do in any time."""
BRIEF = Patience(quiet_s=0.05)
"""Half of a run is listening to silence; what our own SDK sends unasked, it sends at once."""

FAULTS = {
    "start.go": ("no-go --armed", "before GO came HELLO"),
    "start.hello": ("other-version", "protocol 2 to 3"),
    "start.welcome": ("hasty", "before WELCOME came READY"),
    "start.pieces": ("whole-welcome", "closed its control link|the control link ended"),
    "start.ready": ("twice", "declares a type twice"),
    "start.version": ("any-welcome", "still runs"),
    "start.eof": ("outlives-start", "still runs"),
    "links.output": ("prints", "byte 0x63 where a frame should begin"),
    "links.descriptors": ("descriptors", "1 descriptors came"),
    "links.exit": ("leaves-a-child", "holds its call link open"),
    "frames.cut-calls": ("cut-calls", "three calls cut at byte 1: "),
    "frames.cut-control": ("cut-control", "the control link ended|within 1 s"),
    "frames.noise-calls": ("resync-calls", "still open"),
    "frames.noise-control": ("resync-control", "still open"),
    "frames.version": ("any-version", "still open"),
    "frames.cap": ("no-cap", "still open"),
    "frames.large": ("small-cap", "closed its call link"),
    "frames.unknown": ("dies-of-unknown", "link ended|closed its"),
    "frames.critical": ("skips-critical", "still open"),
    "calls.answers": ("answers-twice", "which was answered or never made"),
    "calls.ids": ("short-ids", "no answer to call 1048577"),
    "calls.shape": ("short", "scores of 8 bytes expected, found 4"),
    "calls.candidates": ("one-mask", "one row of mask, please"),
    "calls.unknown": ("dies-of-methods", "link ended"),
    "calls.late": ("no-deadlines", "was not refused"),
    "calls.one-way": ("answers-events", "one-way call was answered|an answer to call 0"),
    "calls.missing": ("invents-views", "without ids that the peer never had was not refused"),
    "calls.tables": ("invents-tables", "without tables that the peer never had was not refused"),
    "handles.stale": ("any-generation", r"handle \[8, 1\] was served"),
    "handles.unknown": ("any-handle", r"999999\] was served"),
    "handles.dropped": ("keeps-dropped", "was served"),
    "configure.unknown": ("makes-anything", "expected one error, found 0"),
    "configure.all": ("makes-half", "was served"),
    "errors.form": ("long-messages", "a message of 20023 bytes"),
    "liveness.ping": ("other-token", "expected PONG 0, found PONG 1"),
    "liveness.dump": ("no-dump", "no answer to call"),
    "cancel.strange": ("answers-cancels", "to call 2000001|to call 1,"),
    "cancel.first": ("forgets-cancelled", "nothing came"),
    "cancel.race": ("answers-cancels", "which was answered or never made"),
    "cancel.late": ("mixes-answers", "scores of 256 bytes expected, found 12"),
    "streams.export": ("no-credit", "bytes of data, the credit is"),
    "streams.control": ("one-thing-at-a-time", "nothing came on the control link"),
    "streams.cancel": ("exports-on", "no answer to call|were answered after"),
    "streams.import": ("forgets-state", "says None of the state"),
    "streams.cold": ("dies-of-state", "no answer to call|link ended|closed its"),
    "streams.over": ("dies-of-data", "link ended|closed its"),
    "stop.drain": ("leaves-at-once", "no answer to call"),
    "stop.idle": ("exits-with-3", "expected exit status 0, found exit code 3"),
    "stop.eof": ("outlives-host", "still runs"),
    "stop.stuck": ("stuck", "still runs"),
    "stop.term": ("ignores-sigterm", "still runs"),
}
"""Rule → the reference peer's arguments, and what the rule must say of it."""

STATE_RULES = {"streams.export", "streams.control", "streams.cancel", "streams.import", "streams.cold"}

Judge = Callable[..., Awaitable[list[Result]]]


def told(results: list[Result], *verdicts: Verdict) -> list[str]:
    return [f"{result.rule}: {result.reason} {result.log}" for result in results if result.verdict in verdicts]


@pytest.mark.anyio
@pytest.mark.parametrize("project", PROJECTS)
async def test_first_party_plugins_keep_every_rule(
    project: str, from_source: Callable[[Path, str], LaunchSpec], judge: Judge
) -> None:
    folder = PLUGINS / project
    tool = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["hotbay"]
    results = await judge(from_source(folder, tool["entrypoint"]), patience=BRIEF)
    assert not told(results, Verdict.BROKEN)
    assert len(results) == len(RULES)
    # Only a type that hands its state over can be asked for it, and none of these reads side tables.
    assert {result.rule for result in results if result.verdict is Verdict.SKIPPED} <= {*STATE_RULES, "calls.tables"}


PLUGIN_WITH_STATE = """
from hotbay_sdk import Plugin, Scorer

plugin = Plugin("large-state")

@plugin.type("constant", reads=["endpoint.labels", "endpoint.active_models", "endpoint.role"], state_versions=[1])
class Constant(Scorer):
    def score(self, request, endpoint):
        return 1.0 if endpoint.labels and endpoint.active_models and endpoint.role else 0.5

    def export_state(self, version):
        return (bytes([number % 256]) * 50_000 for number in range(40))

    def import_state(self, version, pieces):
        if b"".join(pieces) != b"".join(self.export_state(version)):
            raise ValueError("other state")
"""


@pytest.mark.anyio
async def test_the_sdk_sends_two_megabytes_of_state_as_credit_allows(
    tmp_path: Path, from_source: Callable[[Path, str], LaunchSpec], judge: Judge
) -> None:
    (tmp_path / "large_state.py").write_text(PLUGIN_WITH_STATE)
    results = await judge(from_source(tmp_path, "large_state:plugin"), *STATE_RULES, "streams.over", "calls.tables")
    assert not told(results, Verdict.BROKEN, Verdict.SKIPPED)


@pytest.mark.anyio
async def test_a_peer_without_the_sdk_keeps_every_rule(reference: Callable[..., LaunchSpec], judge: Judge) -> None:
    results = await judge(reference())
    assert not told(results, Verdict.BROKEN)
    assert [result.rule for result in results if result.verdict is Verdict.SKIPPED] == ["start.go"]


@pytest.mark.anyio
@pytest.mark.parametrize("rule", FAULTS)
async def test_a_peer_that_breaks_a_rule_is_told_so(
    rule: str, reference: Callable[..., LaunchSpec], judge: Judge
) -> None:
    arguments, reason = FAULTS[rule]
    (result,) = await judge(reference(*arguments.split()), rule, patience=HURRIED)
    assert result.verdict is Verdict.BROKEN
    assert re.search(reason, result.reason), result.reason


def test_every_rule_has_a_fault_that_it_was_seen_to_find() -> None:
    assert [rule.id for rule in RULES] == list(FAULTS)


FIELD_FAILURES = {
    "r04": ("frames.cut-calls", "frames.cut-control"),
    "r06": ("frames.noise-calls", "frames.noise-control"),
    "r10": ("calls.ids", "cancel.race", "cancel.late"),
}
"""Field failure → the rules that are its repro: three frames cut at every byte and a byte at a time; 13 letters, 0xdc and
0xc1 between frames; a cancelled call's answer beside the last ids that there are. How late that answer comes is the peer's
affair, so its time is not the field's 200 ms."""


@pytest.mark.anyio
@pytest.mark.parametrize("failure", FIELD_FAILURES)
async def test_r04_r06_r10_do_not_occur_with_our_sdk(
    failure: str, tmp_path: Path, from_source: Callable[[Path, str], LaunchSpec], judge: Judge
) -> None:
    (tmp_path / "large_state.py").write_text(PLUGIN_WITH_STATE)
    results = await judge(from_source(tmp_path, "large_state:plugin"), *FIELD_FAILURES[failure], patience=BRIEF)
    assert len(results) == len(FIELD_FAILURES[failure])
    assert not told(results, Verdict.BROKEN, Verdict.SKIPPED)
