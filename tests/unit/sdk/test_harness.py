"""The test tool that authors get: every point by name, errors as exceptions, only declared data crosses."""

import math

import pytest
from hotbay_sdk import (
    DataProducer,
    Extractor,
    Filter,
    ParameterError,
    Picker,
    Plugin,
    PreRequest,
    ProfileHandler,
    Scorer,
)
from hotbay_sdk.testing import PluginCallError, PluginHarness

plugin = Plugin("sample")
ENDPOINTS = {"a": {"waiting": 1, "block_size": 16}, "b": {"waiting": 3}, "c": {}}


def limit_of(raw):
    if raw.get("limit", 0) < 0:
        raise ParameterError("limit", "expected 0 or more")
    return raw.get("limit", 2)


@plugin.type("limit", reads=["endpoint.waiting", "endpoint.block_size", "request.model"], parameters=limit_of)
class Limit(Filter, Scorer, Picker):
    def keep(self, request, endpoint):
        return not endpoint.waiting > self.parameters

    def score(self, request, endpoint):
        if request.model == "bad":
            raise ValueError("bad model")
        return endpoint.block_size

    def pick(self, request, candidates, n):
        return [c.row for c in reversed(candidates)]


@plugin.type(
    "seen", reads=["request.prompt_hashes", "request.headers[x-user]"], produces={"Seen.n": "row", "Seen.h": "request"}
)
class Seen(DataProducer, PreRequest):
    block_tokens = 64

    def __init__(self, context):
        self.seen: dict[str, int] = {}

    def produce(self, request, endpoints):
        assert request.header("X-User") == "u"
        return {"Seen.n": [self.seen.get(i, 0) for i in endpoints.ids], "Seen.h": len(request.prompt_hashes)}

    def pre_request(self, request, picked, endpoints):
        self.seen[picked.targets[0]] = self.seen.get(picked.targets[0], 0) + 1


@plugin.type("use", consumes=["Seen.n"])
class Use(Scorer):
    def score(self, request, endpoint):
        return endpoint.data("Seen.n")


@plugin.type("handler", reads=["request.headers[x-profile]"])
class Handler(ProfileHandler):
    def pick(self, request, profiles, results, endpoints):
        return [] if results else [request.header("x-profile") or profiles[0]]

    def process(self, request, results, endpoints):
        name = next(iter(results))
        return name, {name: results[name]}


@pytest.fixture
def harness():
    with PluginHarness(plugin) as made:
        yield made


def test_filter_and_scorer_answer_by_endpoint_id(harness):
    harness.configure("ref", "limit")
    assert harness.keep("ref", ENDPOINTS) == [["a", "c"]]
    assert harness.keep("ref", ENDPOINTS, [{}, {}], candidates=["b", "c"]) == [["c"], ["c"]]
    asked = [{"model": "m"}]
    assert harness.score("ref", ENDPOINTS, asked, candidates=["a", "b"], raw=True) == [{"a": 16.0, "b": -1.0}]


def test_scores_count_as_a_host_counts_them(harness):
    harness.configure("use", "use")
    data = {"Seen.n": [math.nan, math.inf, -math.inf, 7.0, -7.0, 0.5]}
    endpoints: dict[str, dict[str, float]] = {name: {} for name in "abcdef"}
    assert harness.score("use", endpoints, data=data) == [{"a": 0.0, "b": 0.0, "c": 0.0, "d": 1.0, "e": 0.0, "f": 0.5}]
    assert harness.score("use", endpoints, candidates=[], data=data) == [{}]


def test_scores_without_a_finite_one_are_a_bad_result(harness):
    harness.configure("use", "use")
    data = {"Seen.n": [0.5, math.nan, math.nan, math.inf]}
    with pytest.raises(PluginCallError, match="BAD_RESULT") as caught:
        harness.score("use", {"a": {}, "b": {}}, [{}, {}], data=data)
    assert caught.value.request == 1
    # Candidates alone count: "a" is none.
    with pytest.raises(PluginCallError, match="BAD_RESULT"):
        harness.score("use", {"a": {}, "b": {}}, candidates=["b"], data={"Seen.n": [0.5, math.nan]})


def test_configure_again_replaces_the_ref(harness):
    harness.configure("ref", "limit")
    harness.configure("ref", "limit", {"limit": 5})
    assert harness.keep("ref", ENDPOINTS) == [["a", "b", "c"]]
    harness.drop("ref")
    with pytest.raises(KeyError):
        harness.keep("ref", ENDPOINTS)


def test_refused_parameters_are_a_parameter_error(harness):
    with pytest.raises(ParameterError) as caught:
        harness.configure("ref", "limit", {"limit": -1})
    assert (caught.value.path, caught.value.message) == ("limit", "expected 0 or more")


def test_unknown_type_is_a_call_error(harness):
    with pytest.raises(PluginCallError, match="it has limit, seen, use, handler"):
        harness.configure("ref", "limt")


def test_error_of_one_request_names_it(harness):
    harness.configure("ref", "limit")
    with pytest.raises(PluginCallError, match="ValueError: bad model") as caught:
        harness.score("ref", ENDPOINTS, [{"model": "m"}, {"model": "bad"}])
    assert caught.value.request == 1


def test_picker_answers_with_ids(harness):
    harness.configure("ref", "limit")
    assert harness.pick("ref", ENDPOINTS, {"a": 0.5, "b": 1.0}, n=2) == ["b", "a"]


def test_producer_learns_and_its_data_reaches_a_consumer(harness):
    harness.configure("seen", "seen")
    harness.configure("use", "use")
    request = {"prompt_hashes": [1, 2, 3], "headers": {"x-user": "u", "x-secret": "s"}}
    harness.pre_request("seen", ENDPOINTS, ["b", "a"], request)
    made = harness.produce("seen", ENDPOINTS, [request])
    assert made == {"Seen.n": [[0.0, 1.0, 0.0]], "Seen.h": [[3.0]]}
    assert harness.score("use", ENDPOINTS, data={"Seen.n": made["Seen.n"][0]}) == [{"a": 0.0, "b": 1.0, "c": 0.0}]


def test_profile_handler_answers(harness):
    harness.configure("h", "handler")
    assert harness.profile_pick("h", ["p", "q"], {}) == ["p"]
    assert harness.profile_pick("h", ["p", "q"], {}, {"headers": {"x-profile": "q"}}) == ["q"]
    assert harness.profile_pick("h", ["p", "q"], {"p": None}) == []
    assert harness.profile_process("h", {"p": ["a", "b"]}) == ("p", {"p": ["a", "b"]})


def test_field_that_no_request_has_is_refused(harness):
    harness.configure("ref", "limit")
    with pytest.raises(ValueError, match="modle is no field"):
        harness.score("ref", ENDPOINTS, [{"modle": "m"}])


@pytest.mark.parametrize(
    ("kind", "figures", "read"),
    [
        # Whole numbers are what a test writes down; what crosses is as a host has it.
        ("f32", [41, None], [41.0, None]),
        (None, [41, None], [41.0, None]),
        ("f32", [0.5, 4], [0.5, 4.0]),
        ("i64", [3, None], [3, -1]),
        ("i64", [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        ("i64", [3.0, 0], [3, 0]),
        ("i64", [None, None], [-1, -1]),
        ("f32", [None, None], [None, None]),
        ("value", [3, None], [None, None]),
        (None, [None, None], [None, None]),
    ],
)
def test_attributes_cross_as_the_package_declares_them_and_else_as_f32(kind, figures, read):
    found = []
    attributes = Plugin("attributes")

    @attributes.type("reads", reads=["attribute.hits", "attribute.odd/i64", "endpoint.waiting"])
    class Reads(Scorer):
        def score_batch(self, requests, endpoints):
            found.append([None if value != value else value for value in endpoints.column("attribute.hits")])
            assert all(map(math.isnan, endpoints.column("attribute.odd/i64")))
            return [list(endpoints.column("endpoint.waiting"))] * len(requests)

    if kind is not None:
        makes(attributes, kind)
    endpoints = {
        f"e{n}": {"waiting": 1} if f is None else {"waiting": 1, "attribute.hits": f} for n, f in enumerate(figures)
    }
    endpoints["e0"]["attribute.odd/i64"] = 1
    with PluginHarness(attributes) as harness:
        harness.configure("reads", "reads")
        # Twice as many requests as endpoints: what is a column is no field of requests.
        assert harness.score("reads", endpoints, [{}] * 4) == [{"e0": 1.0, "e1": 1.0}] * 4
    assert found == [read]
    assert [type(value) for value in found[0]] == [type(value) for value in read]


def makes(attributes: Plugin, kind: str) -> None:
    @attributes.type("makes", payload="json", attributes={"hits": kind})
    class Makes(Extractor):
        def extract(self, payload, endpoint):
            return {}


@pytest.mark.parametrize("figure", [0.5, 2**63, -(2**63) - 1, 10**400, math.nan, math.inf])
def test_no_whole_number_is_refused_where_the_package_declares_i64(figure):
    attributes = Plugin("attributes")
    makes(attributes, "i64")

    @attributes.type("reads", reads=["attribute.hits"])
    class Reads(Scorer):
        def score(self, request, endpoint):
            return 1.0

    with PluginHarness(attributes) as harness:
        harness.configure("reads", "reads")
        with pytest.raises(ValueError, match=r"a: attribute.hits is a whole number of 64 bits, found"):
            harness.score("reads", {"a": {"attribute.hits": figure}})


def test_ready_without_instances(harness):
    assert harness.check_ready()


# -- side tables -----------------------------------------------------------------------------------


@plugin.type(
    "told", reads=["endpoint.labels", "endpoint.role", "endpoint.active_models", "endpoint.model", "request.model"]
)
class Told(Scorer):
    def score(self, request, endpoint):
        heard.append((endpoint.id, dict(endpoint.labels), endpoint.role, dict(endpoint.active_models), endpoint.model))
        return 1.0


heard: list[tuple[object, ...]] = []


def test_side_tables_cross_as_a_host_has_them():
    endpoints = {
        "a": {"labels": {"llm-d.ai/role": "decode"}, "active_models": {"x": 1}, "waiting": 3},
        "b": {"endpoint.role": "prefill", "endpoint.model": "m"},
        "c": {},
    }
    with PluginHarness(plugin) as harness:
        harness.configure("told", "told")
        heard.clear()
        assert harness.score("told", endpoints) == [{"a": 1.0, "b": 1.0, "c": 1.0}]
        assert heard == [
            ("a", {"llm-d.ai/role": "decode"}, "decode", {"x": 1}, ""),
            ("b", {}, "prefill", {}, "m"),
            ("c", {}, "", {}, ""),
        ]


@pytest.mark.parametrize(
    ("figures", "found"),
    [
        ({"labels": "x"}, "a: endpoint.labels is a Mapping, found str"),
        ({"model": 3}, "a: endpoint.model is a str, found int"),
        ({"active_models": ["x"]}, "a: endpoint.active_models is a Mapping, found list"),
    ],
)
def test_what_is_no_value_of_a_table_is_refused(figures, found):
    with PluginHarness(plugin) as harness:
        harness.configure("told", "told")
        with pytest.raises(ValueError, match=found):
            harness.score("told", {"a": figures})


def test_a_figure_is_a_number():
    with PluginHarness(plugin) as harness:
        harness.configure("limit", "limit")
        with pytest.raises(ValueError, match=r"a: endpoint.waiting is a number, found dict"):
            harness.score("limit", {"a": {"waiting": {}}})
