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
# All run the same SDK: these three, which have the most different points, say what the default lane has to know.
ALWAYS = {"disaggregation", "standard"}
PROJECTS = [pytest.param(name, marks=[] if name in ALWAYS else [pytest.mark.slow]) for name in NAMES]
HURRIED = Patience(answer_s=1.0, ready_s=2.0, exit_s=1.0)
"""For peers that are at fault: what they do not do, they do not do in any time."""
BRIEF = Patience(quiet_s=0.05)
"""Half of a run is listening to silence; what our own SDK sends unasked, it sends at once."""

PARAMETERS = {
    "attributes": {
        "endpoint-attribute-filter": {
            "attribute": "depth",
            "algorithm": {"type": "threshold", "operator": "LessThan", "value": 1},
        },
        "endpoint-attribute-scorer": {"attribute": "depth", "algorithm": {"type": "linear_lower_is_better"}},
        "utilization-filter": {"conditions": [{"metric": "waiting-queue", "maxValue": 1}]},
    },
}
"""Project → parameters of its types, for those that cannot be made without."""

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
    "points.declared": ("odd-claims", "declares the claim 'chat'"),
    "points.facts": ("odd-facts", "sets the header 'X-Steward'"),
    "points.results": ("odd-verdicts", "the code of a denial is one of bad-request,"),
    "points.profiles": ("odd-primary", "neither nil nor {primary, results} whose primary has a result"),
    "points.told": ("answers-responses", "one-way call was answered|an answer to call 0"),
    "points.handles": ("any-point-handle", r"screen with handle \[8, 1\] was served"),
    "points.state": ("large-dump", "FRAME_TOO_LARGE"),
    "data.declared": ("odd-payload", "answers extract and declares payload 'pages'"),
    "data.extract": ("undeclared", "attribute 'other', and the type declares depth, engine"),
    "data.events": ("flat-events", "endpoint 'seen': expected a map of attributes, found int"),
    "data.notify": ("half-events", "the event has no object"),
    "data.poll": ("other-payload", "int as text"),
    "data.handles": ("any-data-generation", r"extract with handle \[8, 1\] was served"),
    "data.dropped": ("keeps-dropped", "was served"),
    "data.late": ("late-data", "was not refused"),
    "data.cancel": ("answers-control-cancels", "which was answered or never made"),
    "discover.records": ("adds", r"no upsert of its kind, delete of a name, or ready: \['add'"),
    "watch.records": ("other-objects", "no upsert of its kind"),
    "runs.credit": ("no-run-credit", "bytes of data, the credit is"),
    "runs.ready": ("never-ready", "did not say ready within 2 s"),
    "runs.beside": ("one-thing-at-a-time", "nothing came on the control link"),
    "runs.cancel": ("runs-on", "had no answer after 1 s"),
    "runs.again": ("tells-once", "left out what it had told before: default/0, default/1,"),
    "runs.goaway": ("runs-for-ever", "still runs"),
    "share.columns": ("ignores-areas", "failed with UNAVAILABLE"),
    "share.stamp": ("any-stamp", "a slot with another stamp was served"),
    "share.drop": ("keeps-areas", "an area that was dropped was served"),
    "share.scores": ("writes-beside", "wrote outside its region of 8 bytes at 64"),
    "share.length": ("any-length", "expected 8 bytes of scores in the answer, found 12"),
    "share.flag": ("any-flag", "still open"),
    "share.unused": ("keeps-descriptors", "is still open"),
    "stop.drain": ("leaves-at-once", "no answer to call"),
    "stop.idle": ("exits-with-3", "expected exit status 0, found exit code 3"),
    "stop.eof": ("outlives-host", "still runs"),
    "stop.stuck": ("stuck", "still runs"),
    "stop.term": ("ignores-sigterm", "still runs"),
}
"""Rule → the reference peer's arguments, and what the rule must say of it."""

STATE_RULES = {"streams.export", "streams.control", "streams.cancel", "streams.import", "streams.cold"}
DATA_RULES = {rule.id for rule in RULES if rule.id.startswith(("data.", "discover.", "watch.", "runs."))}
POINT_RULES = {rule.id for rule in RULES if rule.id.startswith("points.")} - {"points.declared"}
HOT_RULES = {"calls.candidates", "calls.missing", *(rule.id for rule in RULES if rule.id.startswith("handles."))}
OVER_CANDIDATES = {"filter", "score", "pick", "produce", "screen", "admit"}
"""Points whose calls have candidates."""
MEMORY_RULES = {rule.id for rule in RULES if rule.id.startswith("share.")}

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
    parameters = PARAMETERS.get(project)
    results = await judge(from_source(folder, tool["entrypoint"]), patience=BRIEF, parameters=parameters)
    assert not told(results, Verdict.BROKEN)
    assert len(results) == len(RULES)
    # Only a type that hands its state over can be asked for it, and not every one reads side tables.
    allowed = {*STATE_RULES, *DATA_RULES, *MEMORY_RULES, *POINT_RULES, "calls.tables"} - {"share.flag", "share.unused"}
    if tool.get("data_types"):
        allowed = (allowed | HOT_RULES) - {"data.declared"}
    if isinstance(tool["types"], dict):
        points = {point for facts in tool["types"].values() for point in facts["points"]}
        allowed |= set() if points & OVER_CANDIDATES else {"calls.candidates"}
    assert {result.rule for result in results if result.verdict is Verdict.SKIPPED} <= allowed


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


PLUGIN_WITH_DATA = """
from hotbay_sdk import (
    Discovery, EventExtractor, Extractor, NotificationSource, Plugin, PollingSource, Scorer, WatchSource,
)

plugin = Plugin("whole-data-layer")

@plugin.type("waiting", reads=["endpoint.waiting", "endpoint.kv_capacity_tokens", "attribute.depth"])
class Waiting(Scorer):
    def score(self, request, endpoint):
        return 1.0 / (1.0 + endpoint.waiting)

@plugin.type("polled", payload="metrics", families=["depth"], attributes={"depth": "f32", "all": "value"})
class Polled(Extractor):
    def extract(self, payload, endpoint):
        return {"depth": payload["depth"][0][1], "all": [endpoint["id"]]} if payload else {"depth": None}

@plugin.type("told", payload="endpoint", attributes={"number": "i64"}, concurrency=4)
class Told(EventExtractor):
    def extract(self, event):
        return {event["endpoint"]["id"]: {"number": event["number"]}}

@plugin.type("labelling", payload="object:apps/v1/Deployment")
class Labelling(NotificationSource):
    def notify(self, event):
        return event if event["type"] == "add_or_update" else None

class Teller:
    def tell(self, notifier, things):
        for thing in things:
            notifier.upsert(thing)
        notifier.ready()
        while not notifier.wait(60.0):
            pass

@plugin.type("finding")
class Finding(Discovery, Teller):
    def discover(self, notifier):
        labels = {"filler": "x" * 200}
        self.tell(notifier, ({"id": f"default/{n}", "address": "10.0.0.1", "port": n, "labels": labels} for n in range(1, 900)))

@plugin.type("watching", payload="object:/v1/Pod")
class Watching(WatchSource, Teller):
    def watch(self, notifier):
        filler = {"text": "x" * 200}
        self.tell(notifier, (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{n}"}, "spec": filler} for n in range(900)
        ))

@plugin.type("polling", payload="models")
class Polling(PollingSource):
    def poll(self, endpoint):
        return [{"id": endpoint["name"]}, {"id": "adapter", "parent": endpoint["name"]}]
"""


@pytest.mark.anyio
async def test_the_sdk_keeps_the_rules_of_the_data_layer_and_of_shared_memory(
    tmp_path: Path, from_source: Callable[[Path, str], LaunchSpec], judge: Judge
) -> None:
    (tmp_path / "whole_data_layer.py").write_text(PLUGIN_WITH_DATA)
    results = await judge(from_source(tmp_path, "whole_data_layer:plugin"), *DATA_RULES, *MEMORY_RULES, patience=BRIEF)
    assert not told(results, Verdict.BROKEN, Verdict.SKIPPED)
    assert len(results) == len(DATA_RULES) + len(MEMORY_RULES)


PLUGIN_WITH_POINTS = """
from hotbay_sdk import (
    Admitter, Denial, Edits, ParsedRequest, Parser, Plugin, PreRequest, ProfileHandler, RequestHeaderProcessor,
    ResponseBodyProcessor, ResponseHeaderProcessor, SaturationDetector, Screener, StateDumper,
)

plugin = Plugin("all-around")

@plugin.type("before", reads=["request.headers[*]", "request.model"], consumes=["*"], claims=["/v1/chat/completions"])
class Before(Parser, RequestHeaderProcessor, Screener, Admitter, SaturationDetector, PreRequest, StateDumper):
    def __init__(self, context):
        self.reads, self.optional = ["request.headers[x-tier]"], ["Tier/mine.name"]
        self.sets_request_headers, self.sets_response_headers = ["x-tier"], ["x-served-by"]

    def parse(self, path, headers, body):
        return ParsedRequest("m", prompt=body.decode())

    def request_headers(self, request):
        return {"tier": request.header("x-tier") or "none"}

    def screen(self, request, endpoint):
        return True

    def admit(self, request, endpoints):
        return None if request.model else Denial("forbidden")

    def saturation(self, endpoints):
        return len(endpoints) / 10

    def pre_request(self, request, picked, endpoints):
        return Edits({"x-tier": None}, {"x-served-by": picked.targets[0]})

    def dump_state(self):
        return {"known": [1, 2], "total": 2}

@plugin.type("handler")
class Handler(ProfileHandler):
    def pick(self, request, profiles, results, endpoints):
        return [name for name in profiles if name not in results]

    def process(self, request, results, endpoints):
        return next(iter(results)), results

@plugin.type("after", every_chunk=True, concurrency=2)
class After(PreRequest, ResponseHeaderProcessor, ResponseBodyProcessor):
    def pre_request(self, request, picked, endpoints):
        pass

    def withdrawn(self, request, picked, endpoints):
        pass

    def response_headers(self, request, response):
        pass

    def response_body(self, request, response):
        pass
"""


@pytest.mark.anyio
async def test_the_sdk_keeps_the_rules_of_calls_around_the_cycle(
    tmp_path: Path, from_source: Callable[[Path, str], LaunchSpec], judge: Judge
) -> None:
    (tmp_path / "all_around.py").write_text(PLUGIN_WITH_POINTS)
    rules = (*POINT_RULES, "points.declared", *HOT_RULES, "calls.shape")
    results = await judge(from_source(tmp_path, "all_around:plugin"), *rules, patience=BRIEF)
    assert not told(results, Verdict.BROKEN, Verdict.SKIPPED)
    assert len(results) == len(rules)


PLUGIN_WITH_HANDLERS = """
from hotbay_sdk import Plugin, ProfileHandler

plugin = Plugin("handlers")

class Handler(ProfileHandler):
    def pick(self, request, profiles, results, endpoints):
        return [self.profile(profiles)] if not results else []

    def process(self, request, results, endpoints):
        name = self.profile(results)
        return name, {name: results[name]}

@plugin.type("disagg")
class Disagg(Handler):
    def profile(self, names):
        if "decode" not in names:
            raise LookupError("there is no profile decode")
        return "decode"

@plugin.type("own")
class Own(Handler):
    def profile(self, names):
        raise LookupError("a name that no one gives it")
"""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("kind", "verdict", "detail"),
    [("disagg", Verdict.KEPT, ""), ("own", Verdict.SKIPPED, "every profile handler of this package raised")],
)
async def test_handlers_of_two_profiles_are_looked_at_and_those_that_only_raise_are_not_said_to_be_good(
    tmp_path: Path,
    from_source: Callable[[Path, str], LaunchSpec],
    judge: Judge,
    kind: str,
    verdict: Verdict,
    detail: str,
) -> None:
    other = "own" if kind == "disagg" else "disagg"
    source = PLUGIN_WITH_HANDLERS.replace(f'@plugin.type("{other}")\n', "")
    (tmp_path / "handlers_only.py").write_text(source)
    [result] = await judge(from_source(tmp_path, "handlers_only:plugin"), "points.profiles", patience=BRIEF)
    assert result.verdict is verdict
    assert detail in result.reason


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
