"""Points around the scheduling cycle, through the protocol in memory: what they are given, what they may answer."""

import math

import pytest
from hotbay_sdk import (
    Admitter,
    Denial,
    Edits,
    Filter,
    ParsedRequest,
    Parser,
    Plugin,
    PreRequest,
    ProfileHandler,
    RequestHeaderProcessor,
    ResponseBodyProcessor,
    ResponseHeaderProcessor,
    SaturationDetector,
    Scorer,
    Screener,
    StateDumper,
    UndeclaredReadError,
)
from hotbay_sdk.protocol import ErrorCode
from hotbay_sdk.protocol.verdicts import MAX_DUMP_BYTES
from hotbay_sdk.testing import PluginCallError, PluginHarness

ENDPOINTS = {"a": {"waiting": 1.0}, "b": {"waiting": 9.0}, "c": {}}


@pytest.fixture
def plugin():
    return Plugin("test")


@pytest.fixture
def harness(plugin):
    with PluginHarness(plugin) as made:
        yield made


# -- before the cycle --------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [False, True])
def test_screeners_keep_candidates(plugin, harness, batch):
    class One(Screener):
        def screen(self, request, endpoint):
            return request.model in ("", endpoint.id)

    class Many(Screener):
        def screen_batch(self, requests, endpoints):
            return [[request.model in ("", i) for i in endpoints.ids] for request in requests]

    plugin.type("screener", reads=["request.model"])(Many if batch else One)
    harness.configure("s", "screener")
    assert harness.screen("s", ENDPOINTS, [{"model": "a"}, {"model": ""}, {"model": "x"}]) == [
        ["a"],
        ["a", "b", "c"],
        [],
    ]
    assert harness.screen("s", ENDPOINTS, candidates=["b"]) == [["b"]]


@pytest.mark.parametrize("found", [None, "raise"])
def test_a_screener_that_fails_for_a_request_narrows_nothing_for_it(plugin, harness, found):
    @plugin.type("screener")
    class Broken(Screener):
        def screen(self, request, endpoint):
            if found == "raise":
                raise ValueError("no")
            return found

    harness.configure("s", "screener")
    with pytest.raises(PluginCallError, match=r"screen returned None|ValueError: no") as failed:
        harness.screen("s", ENDPOINTS)
    assert failed.value.request == 0


@pytest.fixture
def admitter(plugin, harness):
    @plugin.type(
        "admitter", reads=["request.priority", "endpoint.waiting"], consumes=["Load.full"], optional=["Who.name"]
    )
    class Full(Admitter):
        def admit(self, request, endpoints):
            if request.priority > 0:
                return None
            if request.priority == -9:
                return "no"
            waiting = [row.waiting for row in endpoints]
            who = request.text("Who.name")
            return Denial(
                "unavailable" if math.isnan(waiting[0]) else "resource-exhausted",
                "",
                f"{who} {request.data('Load.full')}",
            )

    harness.configure("a", "admitter")
    return harness


def test_admitters_admit_or_deny_each_request_by_what_was_produced(admitter):
    data = {"Load.full/request": [0.5, 0.75], "Who.name/text": ["ann", None]}
    found = admitter.admit("a", ENDPOINTS, [{"priority": 1}, {}], data=data)
    assert found == [None, Denial("resource-exhausted", "rejected-saturated", " 0.75")]
    assert admitter.admit("a", ENDPOINTS, candidates=["c"]) == [Denial("unavailable", "rejected-no-endpoints", " nan")]


def test_an_admitters_other_result_is_a_bad_result_of_its_request(admitter):
    with pytest.raises(PluginCallError, match="admit returned a str, expected None to admit or a Denial") as failed:
        admitter.admit("a", ENDPOINTS, [{"priority": 1}, {"priority": -9}])
    assert (failed.value.error.code, failed.value.request) == (ErrorCode.BAD_RESULT, 1)


@pytest.mark.parametrize(
    ("denial", "wrong"),
    [
        (Denial("teapot"), "the code of a denial is one of bad-request, unauthorized,"),
        (Denial("forbidden", "Not Today"), "the reason of a denial is 1 to 64"),
        (Denial("forbidden", "a" * 65), "the reason of a denial is 1 to 64"),
        (Denial("forbidden", "a" * 64), None),
    ],
)
def test_denials_are_of_known_codes(plugin, harness, denial, wrong):
    @plugin.type("admitter")
    class Denies(Admitter):
        def admit(self, request, endpoints):
            return denial

    harness.configure("a", "admitter")
    if wrong is None:
        assert harness.admit("a", ENDPOINTS) == [denial]
    else:
        with pytest.raises(PluginCallError, match=wrong):
            harness.admit("a", ENDPOINTS)


def test_a_denials_long_message_is_cut(plugin, harness):
    @plugin.type("admitter")
    class Denies(Admitter):
        async def admit(self, request, endpoints):
            return Denial("forbidden", "long", "ä" * 9999)

    harness.configure("a", "admitter")
    (denial,) = harness.admit("a", ENDPOINTS)
    assert len(denial.message.encode()) == 4096


def test_processors_of_headers_set_attributes_or_deny(plugin, harness):
    @plugin.type("tiers", reads=["request.headers[x-tier]"])
    class Tiers(RequestHeaderProcessor):
        def request_headers(self, request):
            tier = request.header("X-Tier")
            if tier == "bad":
                return Denial("forbidden")
            return {"tier": tier, "weight": 2, "share": 0.5} if tier else None

    @plugin.type("reader", reads=["request.attributes[tier]"])
    class Reader(Scorer):
        def score(self, request, endpoint):
            return 1.0 if request.attribute("tier") == "gold" else 0.0

    harness.configure("t", "tiers")
    asked = [{"headers": {"x-tier": tier}} for tier in ("gold", "bad")]
    gold, denied, nothing = harness.request_headers("t", [*asked, {}])
    assert (gold, nothing) == ({"tier": "gold", "weight": 2, "share": 0.5}, {})
    assert denied == Denial("forbidden", "denied")
    harness.configure("r", "reader")
    assert harness.score("r", {"a": {}}, [{"attributes": gold}, {}]) == [{"a": 1.0}, {"a": 0.0}]


@pytest.mark.parametrize("found", [3, {"a": [1]}, {"a b": 1}, {"a": None}, {"a": 2**63}, {3: 1}], ids=repr)
def test_attributes_of_another_form_are_bad_results(plugin, harness, found):
    @plugin.type("tiers")
    class Tiers(RequestHeaderProcessor):
        def request_headers(self, request):
            return found

    harness.configure("t", "tiers")
    with pytest.raises(PluginCallError) as failed:
        harness.request_headers("t")
    assert failed.value.error.code is ErrorCode.BAD_RESULT


@pytest.fixture
def parsing(plugin, harness):
    results = {
        b"ok": ParsedRequest("m", prompt="hi", messages=({"role": "user"},), stream=True, max_tokens=3),
        b"no": Denial("bad-request", "empty"),
        b"none": None,
        b"empty": ParsedRequest(""),
        b"odd": ParsedRequest("m", prompt=b"x"),
        b"deep": ParsedRequest("m", messages=[{1: 2}]),
    }

    @plugin.type("parser", reads=["request.headers[x-a]"], claims=["/v1/x", "/v1/x"])
    class Mine(Parser):
        def parse(self, path, headers, body):
            self.seen = path, headers
            if body == b"raise":
                raise ValueError(path)
            return results[body]

    assert plugin.declarations[0].claims == ("/v1/x",)
    harness.configure("p", "parser")
    return harness


def test_parsers_read_bodies_or_deny(parsing):
    parsed = parsing.parse("p", "/v1/x", b"ok", {"X-A": "1", "authorization": "secret"})
    assert parsed == ParsedRequest("m", "hi", [{"role": "user"}], True, 3)
    assert parsing._instance_of("p").object.seen == ("/v1/x", {"x-a": "1"})
    assert parsing.parse("p", "/v1/x", b"no") == Denial("bad-request", "empty")


@pytest.mark.parametrize("body", [b"none", b"empty", b"odd", b"deep", b"raise"])
def test_what_a_parser_cannot_say_is_an_error_of_the_call(parsing, body):
    with pytest.raises(PluginCallError) as failed:
        parsing.parse("p", "/v1/x", body)
    assert failed.value.error.code is (ErrorCode.PLUGIN_ERROR if body == b"raise" else ErrorCode.BAD_RESULT)


@pytest.mark.parametrize(
    ("found", "taken"),
    [(0, 0.0), (1.5, 1.5), (-0.1, None), (math.nan, None), (math.inf, None), ("1", None), (None, None)],
)
def test_saturation_is_a_finite_number_from_0_up(plugin, harness, found, taken):
    @plugin.type("detector", reads=["endpoint.waiting"])
    class Detector(SaturationDetector, Filter):
        def saturation(self, endpoints):
            assert [row.id for row in endpoints] == ["a", "b", "c"]
            assert endpoints.column("endpoint.waiting")[1] == 9.0
            return found

        def keep(self, request, endpoint):
            return True

    harness.configure("d", "detector")
    if taken is not None:
        assert harness.saturation("d", ENDPOINTS) == taken
    else:
        with pytest.raises(PluginCallError, match="expected a finite number from 0 up"):
            harness.saturation("d", ENDPOINTS)


def test_profile_handlers_see_endpoints_and_data(plugin, harness):
    @plugin.type("handler", reads=["endpoint.waiting", "request.peer"], consumes=["Match.blocks"])
    class Handler(ProfileHandler):
        def pick(self, request, profiles, results, endpoints):
            best = max(endpoints, key=lambda row: row.data("Match.blocks"))
            return [f"{best.id}:{best.waiting:g}"]

        def process(self, request, results, endpoints):
            return "p", {"p": [row.id for row in endpoints]}

    harness.configure("h", "handler")
    assert harness.profile_pick("h", ["p"], {}, None, ENDPOINTS, data={"Match.blocks": [1, 5, 2]}) == ["b:9"]
    assert harness.profile_process("h", {"p": ["c"]}, None, ENDPOINTS) == ("p", {"p": ["a", "b", "c"]})


# -- after it ----------------------------------------------------------------------------------------


@pytest.fixture
def setter(plugin, harness):
    @plugin.type("setter", parameters=dict)
    class Setter(PreRequest):
        def __init__(self, context, parameters):
            self.sets_request_headers = parameters.get("request", ())
            self.sets_response_headers = parameters.get("response", ())
            self.returns = parameters["returns"]
            self.told = []

        def pre_request(self, request, picked, endpoints):
            self.told.append((picked.targets, picked.profile, picked.results))
            return Edits(**self.returns) if isinstance(self.returns, dict) else self.returns

        def withdrawn(self, request, picked, endpoints):
            self.told.append(("withdrawn", *picked.targets))

    return harness


def test_an_instance_that_names_headers_sets_them(setter):
    setter.configure(
        "s",
        "setter",
        {
            "request": ["x-a", "x-b"],
            "response": ["x-c"],
            "returns": {"request": {"x-a": "1", "x-b": None}, "response": {"x-c": "2"}},
        },
    )
    results = {"decode": ["a"], "prefill": ["b"], "encode": None}
    edits = setter.pre_request("s", ENDPOINTS, ["a"], profile="decode", results=results)
    assert edits == Edits({"x-a": "1", "x-b": None}, {"x-c": "2"})
    assert setter._instance_of("s").object.told == [(["a"], "decode", results)]
    assert setter.facts("s").request_headers == ("x-a", "x-b")


@pytest.mark.parametrize(
    ("returns", "wrong"),
    [
        ({"request": {"x-z": "1"}}, "edits set the request's header 'x-z': sets_request_headers does not name it"),
        ({"request": {"x-a": "1\nx-b: 2"}}, "without control characters"),
        ({"request": {"x-a": 3}}, "without control characters"),
        ("x-a: 1", "pre_request returned a str, expected Edits or None"),
    ],
)
def test_edits_of_another_form_are_bad_results(setter, returns, wrong):
    setter.configure("s", "setter", {"request": ["x-a"], "returns": returns})
    with pytest.raises(PluginCallError, match=wrong):
        setter.pre_request("s", ENDPOINTS, ["a"])


def test_no_edits_are_none(setter):
    for returns in (None, {}, {"request": {}}):
        setter.configure("s", "setter", {"request": ["x-a"], "returns": returns})
        assert setter.pre_request("s", ENDPOINTS, ["a"]) is None


def test_who_sets_no_headers_is_told_and_answers_nothing(setter, capsys):
    setter.configure("s", "setter", {"returns": {"request": {"x-a": "1"}}})
    assert setter.pre_request("s", ENDPOINTS, ["a", "b"]) is None
    assert setter._instance_of("s").object.told == [(["a", "b"], "default", {"default": ["a", "b"]})]
    assert "sets_request_headers does not name it" in capsys.readouterr().err


def test_requests_without_a_first_byte_are_withdrawn_where_somebody_listens(plugin, setter):
    @plugin.type("deaf")
    class Deaf(PreRequest):
        def pre_request(self, request, picked, endpoints):
            raise AssertionError("not told")

    setter.configure("s", "setter", {"request": ["x-a"], "returns": None})
    setter.withdrawn("s", ENDPOINTS, ["b"])
    assert setter._instance_of("s").object.told == [("withdrawn", "b")]
    setter.configure("d", "deaf")
    setter.withdrawn("d", ENDPOINTS, ["b"])


def test_responses_are_told_as_they_are(plugin, harness):
    @plugin.type("listener", reads=["request.id", "response.headers[X-Cost]"], every_chunk=True)
    class Listener(ResponseHeaderProcessor, ResponseBodyProcessor):
        def __init__(self, context):
            self.told = []

        def response_headers(self, request, response):
            self.told.append(
                (request.id, response.endpoint, response.status, response.header("x-cost"), dict(response.headers))
            )

        async def response_body(self, request, response):
            facts = (response.bytes, response.chunks, response.usage, response.end, response.cause, response.first_byte)
            self.told.append(
                (*facts, response.ttft_us, response.elapsed_us, response.profile, response.header("x-cost"))
            )

    harness.configure("l", "listener")
    told = harness._instance_of("l").object.told
    harness.response_headers(
        "l", {"endpoint": "a", "status": 200, "headers": {"x-cost": "3", "x-other": "4"}}, {"id": "r"}
    )
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "cached_tokens": 0}
    harness.response_body(
        "l", {"bytes": 5, "chunks": 1, "end": False, "cause": None, "first_byte": True, "ttft_us": 7, "profile": "p"}
    )
    harness.response_body("l", {"usage": usage, "elapsed_us": 9})
    assert told == [
        ("r", "a", 200, "3", {"x-cost": "3"}),
        (5, 1, None, False, None, True, 7, None, "p", None),
        (0, 0, usage, True, "natural", False, None, 9, "", None),
    ]


def test_a_header_of_a_response_that_is_not_declared_is_named(plugin, harness, capsys):
    @plugin.type("listener")
    class Listener(ResponseHeaderProcessor):
        def response_headers(self, request, response):
            response.header("X-Cost")

    harness.configure("l", "listener")
    harness.response_headers("l", {"headers": {"x-cost": "3"}})
    assert 'reads=["response.headers[x-cost]"]' in capsys.readouterr().err


# -- any time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "wrong"),
    [
        ({"sessions": ["a"], "total": 7}, None),
        (None, None),
        ("x" * (MAX_DUMP_BYTES - 5), None),
        ("x" * (MAX_DUMP_BYTES - 4), "at most 262144: cut its lists"),
        ({"set": {1}}, "what cannot cross: set: "),
    ],
    ids=["map", "none", "longest", "too long", "set"],
)
def test_state_is_any_value_up_to_a_size(plugin, harness, state, wrong):
    @plugin.type("dumper")
    class Dumper(StateDumper):
        def dump_state(self):
            return state

    harness.configure("d", "dumper")
    if wrong is None:
        assert harness.dump_state("d") == state
    else:
        with pytest.raises(PluginCallError, match=wrong):
            harness.dump_state("d")


def test_what_is_not_declared_is_not_read(plugin, harness):
    @plugin.type("reader")
    class Reader(Scorer):
        def score(self, request, endpoint):
            for read in (
                lambda: request.attribute("tier"),
                lambda: request.text("Who.name"),
                lambda: request.peer,
                lambda: request.stream,
            ):
                with pytest.raises(UndeclaredReadError):
                    read()
            return 1.0

    harness.configure("r", "reader")
    assert harness.score("r", {"a": {}}) == [{"a": 1.0}]
