"""Every point that a package can answer, with real processes: what a plugin says there is what becomes of requests."""

import orjson
import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(90)]

POINTS = """
import os
from hotbay_sdk import (
    Admitter, DataProducer, Denial, Edits, ParsedRequest, Parser, Picker, Plugin, PreRequest, ProfileHandler,
    RequestHeaderProcessor, ResponseBodyProcessor, ResponseHeaderProcessor, SaturationDetector, Scorer, Screener,
    StateDumper,
)

plugin = Plugin("points")

@plugin.type("odd-parser", claims=["/v1/odd"])
class OddParser(Parser):
    def parse(self, path, headers, body):
        text = bytes(body).decode()
        if not text.startswith("odd:"):
            return Denial("bad-request", "not-odd", "the body is not odd")
        return ParsedRequest("m", prompt=text[4:])

@plugin.type("who-processor", reads=["request.headers[x-who]"])
class WhoProcessor(RequestHeaderProcessor):
    def request_headers(self, request):
        who = request.header("x-who")
        if who == "nobody":
            return Denial("unauthorized", "no-name")
        return {"who": who} if who else None

@plugin.type("not-screener", reads=["request.headers[x-not]"])
class NotScreener(Screener):
    def screen(self, request, endpoint):
        return endpoint.id not in (request.header("x-not") or "").split()

@plugin.type("mark-producer", reads=["request.prompt"], produces={"Mark.row": "row"})
class MarkProducer(DataProducer):
    def produce(self, request, endpoints):
        marked = [0.0] * len(endpoints)
        for row in endpoints:
            marked[row.row] = float(row.id.rpartition("/")[2] in request.prompt)
        return {"Mark.row": marked}

@plugin.type("as-asked-admitter", reads=["request.headers[x-deny]"])
class AsAskedAdmitter(Admitter):
    def admit(self, request, endpoints):
        code = request.header("x-deny")
        return Denial(code, "as-asked" if code != "resource-exhausted" else "") if code else None

@plugin.type("full-detector")
class FullDetector(SaturationDetector):
    def saturation(self, endpoints):
        return 1.0

@plugin.type("both-handler")
class BothHandler(ProfileHandler):
    def pick(self, request, profiles, results, endpoints):
        return [] if results else list(profiles)

    def process(self, request, results, endpoints):
        return "second", results

@plugin.type("who-scorer", reads=["request.attributes[who]"])
class WhoScorer(Scorer):
    def score(self, request, endpoint):
        return float(endpoint.id == f"default/{request.attribute('who')}")

@plugin.type("worst-picker")
class WorstPicker(Picker):
    def pick(self, request, candidates, n):
        return sorted(candidates, key=lambda candidate: candidate.score)[:n]

@plugin.type("picked-setter", reads=["request.headers[x-fail]"])
class PickedSetter(PreRequest):
    sets_request_headers = ("x-picked", "x-results")
    sets_response_headers = ("x-session",)

    def pre_request(self, request, picked, endpoints):
        if request.header("x-fail"):
            raise RuntimeError("as asked")
        results = ";".join(f"{name}={','.join(ids)}" for name, ids in sorted(picked.results.items()))
        return Edits({"x-picked": picked.targets[0], "x-results": results}, {"x-session": picked.targets[0]})

@plugin.type("listener", reads=["request.headers[x-who]", "response.headers[x-cost]"])
class Listener(ResponseHeaderProcessor, ResponseBodyProcessor, StateDumper):
    def __init__(self, context):
        self.heads, self.ends = [], []

    def response_headers(self, request, response):
        self.heads.append([response.endpoint, response.status, response.header("x-cost")])

    def response_body(self, request, response):
        tokens = response.usage["completion_tokens"] if response.usage else None
        self.ends.append([request.header("x-who"), response.endpoint, response.cause, response.first_byte, tokens])

    def dump_state(self):
        return {"heads": self.heads, "ends": self.ends}
"""
TYPES = (
    "odd-parser",
    "who-processor",
    "not-screener",
    "mark-producer",
    "as-asked-admitter",
    "full-detector",
    "both-handler",
    "who-scorer",
    "worst-picker",
    "picked-setter",
    "listener",
)
READER = """
from hotbay_sdk import Plugin, Scorer

plugin = Plugin("reader")

@plugin.type("mark-scorer", consumes=["Mark.row", "TokenizedPrompt.token_ids"])
class MarkScorer(Scorer):
    def score(self, request, endpoint):
        tokens = request.text("TokenizedPrompt.token_ids")
        return float(endpoint.id == {"7 8": "default/v1", "9": "default/v2"}[tokens]) if tokens else endpoint.data("Mark.row")
"""
PACKAGES = {"points": (POINTS, TYPES), "reader": (READER, ("mark-scorer",))}
PICKER = (
    "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n"
    + "".join(f"- {{type: {name}}}\n" for name in (*TYPES, "mark-scorer", "max-score-picker"))
    + """\
- {type: inflight-load-producer, parameters: {release: first-token}}
schedulingProfiles:
- name: first
  plugins: [{pluginRef: who-scorer}, {pluginRef: worst-picker}]
- name: second
  plugins: [{pluginRef: who-scorer}, {pluginRef: mark-scorer}, {pluginRef: max-score-picker}]
requestHandler:
  parsers: [{pluginRef: odd-parser}, {pluginRef: openai-parser}]
flowControl:
  saturationDetector: {pluginRef: full-detector}
"""
)
# Deadlines that a busy machine does not miss: what is tested is what is said, not how soon.
CONFIG = "bindings: {" + ", ".join(f"{name}: {{deadline: 5s}}" for name in (*TYPES, "mark-scorer")) + "}\n"
OBJECTIVE = """\
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: cheap}
spec: {priority: -1}
"""


@pytest.mark.timeout(150)
async def test_what_plugins_say_at_each_point_is_what_becomes_of_requests(run_host, tmp_path):
    (tmp_path / "objectives.yaml").write_text(OBJECTIVE)
    async with run_host(PACKAGES, PICKER, f"{CONFIG}models: {{files: [objectives.yaml]}}\n") as bay:
        await attribute_of_a_header_decides_and_headers_are_set(bay)
        await package_reads_a_body_and_another_consumes_what_a_third_type_made_of_it(bay)
        await screener_takes_endpoints_away(bay)
        await denials_keep_their_codes_and_reasons(bay)
        await detector_sheds_what_has_a_priority_below_0(bay)
        await headers_of_a_setter_that_fails_are_not_the_client_s(bay)
        state = await bay.until_state("listener", lambda state: len(state["ends"]) == 8)
        assert state["heads"] == [[end[1], 200, "7"] for end in state["ends"]]
        assert {(cause, first_byte, tokens) for _, _, cause, first_byte, tokens in state["ends"]} == {
            ("natural", True, 5)
        }
        await end_is_told_when_the_client_leaves(bay)
        await token_ids_cross_by_a_producer_that_nobody_listed(bay)
        assert (await bay.post(x_who="v1", prefer="if-available")).reason == (412, "precondition-failed")
        errors = {(point, ref) for (point, ref, _), _ in bay.serving.metrics.plugin_errors.items()}
        assert errors == {("pre_request", "picked-setter")}


async def attribute_of_a_header_decides_and_headers_are_set(bay):
    for name, other in (("v1", "v2"), ("v2", "v1")):
        answer = await bay.post(x_who=name, x_picked="mine")
        assert (answer.status, answer.name, answer.headers["x-session"]) == (200, name, f"default/{name}")
        head = bay.servers[name].heads[-1]
        # The first profile's own picker takes the worst; the handler says that the second one is what counts.
        assert head["x-results"] == f"first=default/{other};second=default/{name}"
        assert head["x-picked"] == f"default/{name}"


async def package_reads_a_body_and_another_consumes_what_a_third_type_made_of_it(bay):
    for name in ("v1", "v2"):
        answer = await bay.post(f"odd:to {name}".encode(), "/v1/odd")
        assert (answer.status, answer.name) == (200, name)
    answer = await bay.post(b"even:to v1", "/v1/odd")
    assert answer.reason == (400, "not-odd")


async def screener_takes_endpoints_away(bay):
    answer = await bay.post(x_who="v1", x_not="default/v1")
    assert (answer.status, answer.name) == (200, "v2")
    answer = await bay.post(x_who="v1", x_not="default/v1 default/v2")
    assert answer.reason == (503, "rejected-no-endpoints")


async def denials_keep_their_codes_and_reasons(bay):
    assert (await bay.post(x_who="nobody")).reason == (401, "no-name")
    answer = await bay.post(x_deny="forbidden")
    assert answer.reason == (403, "as-asked")
    assert orjson.loads(answer.body)["error"]["code"] == "as-asked"
    answer = await bay.post(x_deny="resource-exhausted")
    assert (answer.reason, answer.headers["retry-after"]) == ((429, "rejected-saturated"), "1")


async def detector_sheds_what_has_a_priority_below_0(bay):
    shed = await bay.post(x_llm_d_inference_objective="cheap")
    assert shed.reason == (429, "rejected-saturated")
    assert "system saturated" in orjson.loads(shed.body)["error"]["message"]
    assert (await bay.post(x_who="v1")).status == 200


async def headers_of_a_setter_that_fails_are_not_the_client_s(bay):
    for _ in range(2):
        answer = await bay.post(x_who="v1", x_picked="mine", x_results="mine", x_fail="1")
        assert (answer.status, answer.name) == (200, "v1")
        assert {"x-picked", "x-results"}.isdisjoint(bay.servers["v1"].heads[-1])
        assert "x-session" not in answer.headers


async def end_is_told_when_the_client_leaves(bay):
    ledger = bay.host._data.store.ledger
    value = {"model": "m", "prompt": "x" * 400, "stream": True}
    bay.servers["v2"].begin.clear()
    reader, writer = await bay.begin(value, "/v1/completions", x_who="v2")
    await bay.until(lambda: ledger.entry("default/v2") is not None)
    assert (ledger.in_flight("default/v2"), ledger.entry("default/v2").known_tokens) == (1, 100)
    bay.servers["v2"].begin.set()
    await reader.readuntil(b"data: {}\n\n")
    assert (ledger.in_flight("default/v2"), ledger.entry("default/v2").known_tokens) == (1, 0)
    writer.close()
    state = await bay.until_state("listener", lambda state: len(state["ends"]) == 9)
    assert state["ends"][8] == ["v2", "default/v2", "client-disconnect", True, None]


async def token_ids_cross_by_a_producer_that_nobody_listed(bay):
    for prompt, name in (([7, 8], "v1"), ([9], "v2")):
        answer = await bay.post({"model": "m", "prompt": prompt}, "/v1/completions")
        assert (answer.status, answer.name) == (200, name)


READY_SETTER = """
import os
from hotbay_sdk import Edits, Plugin, PreRequest

plugin = Plugin("setter")

@plugin.type("setter")
class Setter(PreRequest):
    sets_request_headers = ("x-to",)

    def check_ready(self):
        return os.path.exists({file!r})

    def pre_request(self, request, picked, endpoints):
        return Edits({{"x-to": picked.targets[0]}})
"""


async def test_host_waits_for_check_ready_and_withholds_headers_of_who_is_gone(run_host, tmp_path):
    file = tmp_path / "go"
    picker = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: setter}]\n"
    packages = {"setter": (READY_SETTER.format(file=str(file)), ("setter",))}
    config = "supervise: {restart: {first: 10m, max: 10m}}\n"
    async with run_host(packages, picker, config, ready=False) as bay:
        await bay.until(lambda: any("setter is not ready" in reason for reason in bay.status["not_ready"]))
        assert not bay.status["ready"]
        file.touch()
        await bay.until(lambda: bay.status["ready"])
        answer = await bay.post(x_to="mine")
        assert bay.servers[answer.name].heads[-1]["x-to"] == f"default/{answer.name}"
        live = bay.status["plugins"][0]["live"]
        bay.kill(live["pid"])
        await bay.until(lambda: not (bay.status["plugins"][0]["live"] or {}).get("pid"))
        answer = await bay.post(x_to="mine")
        assert answer.status == 200
        assert "x-to" not in bay.servers[answer.name].heads[-1]
