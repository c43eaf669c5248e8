"""What instances say of themselves, what that lets them read, and whom they find beside themselves."""

import math

import pytest
from hotbay_sdk import (
    DataProducer,
    Filter,
    ParameterError,
    Parser,
    Plugin,
    PreRequest,
    ResponseBodyProcessor,
    Scorer,
    UndeclaredReadError,
)
from hotbay_sdk.protocol.calls import MAX_NAMES, InstanceFacts
from hotbay_sdk.testing import PluginCallError, PluginHarness
from hypothesis import given
from hypothesis import strategies as st

ATTRIBUTES = ("reads", "consumes", "optional", "sets_request_headers", "sets_response_headers", "block_tokens")


class Says(Scorer, PreRequest):
    """Has the attributes that its parameters say."""

    def __init__(self, context, parameters):
        for name, value in parameters.items():
            setattr(self, name, value)

    def score(self, request, endpoint):
        return 1.0

    def pre_request(self, request, picked, endpoints):
        return None


def a_harness(*, reads=(), consumes=(), optional=()):
    plugin = Plugin("test")
    plugin.type("says", reads=reads, consumes=consumes, optional=optional, parameters=dict)(Says)
    return PluginHarness(plugin)


def facts_of(parameters, **declared):
    with a_harness(**declared) as harness:
        harness.configure("ref", "says", parameters)
        return harness.facts("ref")


WILD = {
    "reads": ["request.headers[*]", "request.attributes[*]", "response.headers[*]", "attribute.*"],
    "consumes": ["*"],
}


def test_an_instance_says_what_is_beside_its_type():
    said = {
        "reads": ["request.headers[X-A]", "request.model", "attribute.load", "request.attributes[Tier]"],
        "consumes": ("K.a", "K/mine.b"),
        "optional": ["L.c"],
        "sets_request_headers": ["x-b"],
        "sets_response_headers": ["x-c"],
        "block_tokens": 16,
    }
    declared = {**WILD, "reads": [*WILD["reads"], "request.model"], "consumes": ["*", "K.a"]}
    assert facts_of(said, **declared) == InstanceFacts(
        16,
        ("request.headers[x-a]", "attribute.load", "request.attributes[Tier]"),
        ("K/mine.b",),
        ("L.c",),
        ("x-b",),
        ("x-c",),
    )


def test_who_says_nothing_is_told_of_as_before():
    assert facts_of({}) == InstanceFacts()
    assert InstanceFacts().to_wire() == {"block_tokens": None}
    assert facts_of({"reads": []}, **WILD) == InstanceFacts()


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (
            {"reads": ["request.headers[x-a]"]},
            r'lists request.headers\[x-a\], which the type does not allow: declare reads=\["request.headers\[\*\]"\]',
        ),
        ({"reads": ["endpoint.waiting"]}, r'declare reads=\["endpoint.waiting"\]'),
        ({"reads": ["endpoint.wating"]}, "lists endpoint.wating, which does not exist"),
        ({"reads": "request.model"}, "the attribute reads is a list of names, found str"),
        ({"reads": 3}, "the attribute reads is a list of names, found int"),
        ({"reads": [3]}, "the attribute reads lists 3, expected names"),
        ({"consumes": ["K.a"]}, r'lists K.a, which the type does not allow: declare consumes=\["\*"\]'),
        ({"optional": ["K"]}, "lists K, expected Key.field or Key/producer.field"),
        ({"sets_request_headers": ["X-A"]}, "lists 'X-A', expected the name of a header in lower case"),
        ({"sets_response_headers": ["x a"]}, "expected the name of a header in lower case"),
        (
            {"sets_request_headers": ["x-a", "authorization"]},
            "sets_request_headers lists 'authorization', which only the",
        ),
        (
            {"sets_response_headers": ["transfer-encoding"]},
            "sets_response_headers lists 'transfer-encoding', which only",
        ),
        ({"block_tokens": 0}, "block_tokens is a whole number above 0"),
        ({"block_tokens": True}, "block_tokens is a whole number above 0"),
    ],
)
def test_what_its_type_does_not_allow_is_refused(said, wrong):
    with pytest.raises(PluginCallError, match=wrong):
        facts_of(said)


@pytest.mark.parametrize(("count", "taken"), [(MAX_NAMES, True), (MAX_NAMES + 1, False)])
def test_names_are_bounded_on_both_sides(count, taken):
    said = {"reads": [f"attribute.a{n}" for n in range(count)]}
    if taken:
        assert len(facts_of(said, **WILD).reads) == count
    else:
        with pytest.raises(PluginCallError, match="lists 257 names, at most 256"):
            facts_of(said, **WILD)


@given(
    st.dictionaries(
        st.sampled_from(ATTRIBUTES),
        st.none()
        | st.integers(-(2**63), 2**64 - 1)
        | st.text(max_size=3)
        | st.lists(st.text(max_size=3) | st.integers(0, 9)),
    )
)
def test_whatever_an_instance_says_is_taken_or_refused_in_words(said):
    try:
        facts_of(said, **WILD)
    except PluginCallError as refused:
        assert str(refused).startswith("CONFIG_INVALID: says: ")  # noqa: PT017  # either outcome is right


def test_headers_are_set_by_a_pre_request_alone():
    plugin = Plugin("test")

    @plugin.type("scorer")
    class Mine(Scorer):
        sets_request_headers = ("x-a",)

        def score(self, request, endpoint):
            return 1.0

    with PluginHarness(plugin) as harness, pytest.raises(PluginCallError, match="is that of a PreRequest"):
        harness.configure("ref", "scorer")


# -- reading -----------------------------------------------------------------------------------------


@pytest.fixture
def plugin():
    return Plugin("test")


def test_two_refs_of_a_type_read_each_their_own(plugin):
    @plugin.type("by-header", reads=["request.headers[*]", "attribute.*"], consumes=["*"], parameters=dict)
    class ByHeader(Scorer):
        def __init__(self, context, parameters):
            self.header, self.attribute = parameters["header"], parameters["attribute"]
            self.reads = [f"request.headers[{self.header}]", f"attribute.{self.attribute}"]
            self.optional = ["Match/mine.share"]

        def score(self, request, endpoint):
            for other in ("x-other", "x-third"):
                with pytest.raises(UndeclaredReadError, match=other):
                    request.header(other)
            share = endpoint.data("Match/mine.share")
            figure = endpoint.column(f"attribute.{self.attribute}")
            return figure if request.header(self.header) == "yes" else 0.0 if math.isnan(share) else share

    endpoints = {"a": {"attribute.load": 0.25, "attribute.heat": 0.75}}
    request = {"headers": {"x-a": "yes", "x-b": "no"}}
    with PluginHarness(plugin) as harness:
        harness.configure("one", "by-header", {"header": "x-a", "attribute": "load"})
        harness.configure("two", "by-header", {"header": "x-b", "attribute": "heat"})
        assert harness.score("one", endpoints, [request]) == [{"a": 0.25}]
        assert harness.score("two", endpoints, [request]) == [{"a": 0.0}]
        assert harness.score("two", endpoints, [request], data={"Match/mine.share": [0.5]}) == [{"a": 0.5}]


def test_a_wildcard_alone_lets_nothing_be_read(plugin):
    @plugin.type("wild", reads=["request.headers[*]", "attribute.*"], consumes=["*"])
    class Wild(Scorer):
        def score(self, request, endpoint):
            for read in (
                lambda: request.header("*"),
                lambda: endpoint.column("attribute.*"),
                lambda: endpoint.data("*"),
            ):
                with pytest.raises(UndeclaredReadError):
                    read()
            return 1.0

    with PluginHarness(plugin) as harness:
        harness.configure("w", "wild")
        assert harness.score("w", {"a": {"attribute.load": 1}}, [{"headers": {"x-a": "1"}}]) == [{"a": 1.0}]


def test_texts_cross_from_producer_to_consumer(plugin):
    @plugin.type(
        "names", reads=["request.model"], produces={"Who.name": "text", "Who.count": "request", "Who.near": "row"}
    )
    class Names(DataProducer):
        def produce(self, request, endpoints):
            return {"Who.name": request.model or None, "Who.count": 2, "Who.near": [1.0] * len(endpoints)}

    @plugin.type("reader", consumes=["Who.name", "Who.near"])
    class Reader(Filter):
        def keep(self, request, endpoint):
            with pytest.raises(ValueError, match=r"Who.name is a column of texts: read it with Request.text"):
                request.data("Who.name")
            with pytest.raises(ValueError, match=r"Who.near is a column of numbers: read it with data"):
                request.text("Who.near")
            return request.text("Who.name") == "m"

    with PluginHarness(plugin) as harness:
        harness.configure("n", "names")
        made = harness.produce("n", {"a": {}, "b": {}}, [{"model": "m"}, {}])
        assert made == {"Who.name": [["m"], [None]], "Who.count": [[2.0], [2.0]], "Who.near": [[1.0, 1.0]] * 2}
        harness.configure("r", "reader")
        data = {"Who.name/text": ["m", None], "Who.near": [0.0] * 2}
        assert harness.keep("r", {"a": {}}, [{}, {}], data=data) == [["a"], []]


@pytest.mark.parametrize(
    ("text", "taken"),
    [("x" * 4096, True), ("x" * 4097, False), (3, False), (b"x", False), (None, True)],
    ids=["longest", "too long", "int", "bytes", "none"],
)
@pytest.mark.parametrize("batch", [False, True])
def test_texts_are_texts_of_a_size(plugin, text, taken, batch):
    class One(DataProducer):
        def produce(self, request, endpoints):
            return {"Who.name": text}

    class Many(DataProducer):
        def produce_batch(self, requests, endpoints):
            return {"Who.name": [text] * len(requests)}

    plugin.type("names", produces={"Who.name": "text"})(Many if batch else One)
    with PluginHarness(plugin) as harness:
        harness.configure("n", "names")
        if taken:
            assert harness.produce("n", {"a": {}}, [{}, {}]) == {"Who.name": [[text], [text]]}
        else:
            with pytest.raises(PluginCallError, match=r"Who.name, holds a"):
                harness.produce("n", {"a": {}}, [{}, {}])


def test_a_batch_of_texts_of_another_length_is_refused(plugin):
    @plugin.type("names", produces={"Who.name": "text"})
    class Names(DataProducer):
        def produce_batch(self, requests, endpoints):
            return {"Who.name": ["one"]}

    with PluginHarness(plugin) as harness:
        harness.configure("n", "names")
        assert harness.produce("n", {}, [{}, {}]) == {"Who.name": [[None], [None]]}, "asked for no endpoints"
        with pytest.raises(PluginCallError, match="has 1 values, expected 2: one for each request"):
            harness.produce("n", {"a": {}}, [{}, {}])


# -- declarations ------------------------------------------------------------------------------------


def test_declarations_of_few_points_cross(plugin):
    @plugin.type(
        "f", drained="ineligible", consumes=["*", "K/ref.a"], optional=["K.b"], claims=["/v1/x"], every_chunk=True
    )
    class Many(Filter, Parser, ResponseBodyProcessor):
        def keep(self, request, endpoint):
            return True

        def parse(self, path, headers, body):
            return None

        def response_body(self, request, response):
            return None

    (declared,) = plugin.declarations
    assert (declared.drained, declared.claims, declared.every_chunk) == ("ineligible", ("/v1/x",), True)
    assert (declared.consumes, declared.optional) == (("*", "K/ref.a"), ("K.b",))
    assert declared.points == ("filter", "parse", "response_body")


class Bare(Scorer):
    """Answers score alone."""

    def score(self, request, endpoint):
        return 1.0


@pytest.mark.parametrize(
    ("declared", "wrong"),
    [
        ({"drained": "ineligible"}, "drained is a Filter's"),
        ({"drained": "empty"}, 'drained is "busy" or "ineligible", found'),
        ({"claims": ["/v1/x"]}, "claims are a Parser's"),
        ({"claims": ["v1/x"]}, "claims names 'v1/x', expected the end of a path"),
        ({"claims": ["/v1?x"]}, "expected the end of a path"),
        ({"claims": "/v1"}, r'claims is a list, write \["/v1"\]'),
        ({"every_chunk": True}, "every_chunk is a ResponseBodyProcessor's"),
        ({"optional": ["*"]}, r"optional names \*, a data column is named Key.field or Key/producer.field"),
        ({"consumes": ["K/a"]}, "consumes names K/a"),
        ({"produces": {"K/a.b": "row"}}, "produces names K/a.b, a data column is named Key.field"),
        ({"reads": ["response.headers"]}, "did you mean"),
    ],
)
def test_declarations_that_fit_no_point_are_refused(declared, wrong):
    with pytest.raises(ValueError, match=wrong):
        Plugin("p").type("x", **declared)(Bare)


# -- beside each other -------------------------------------------------------------------------------


@pytest.fixture
def deciding(plugin):
    @plugin.type("decider", parameters=dict)
    class Decider(Scorer):
        def score(self, request, endpoint):
            return float(self.parameters["score"])

    @plugin.type("asks", parameters=dict)
    class Asks(Scorer):
        def __init__(self, context, parameters):
            self.decider = context.plugin(parameters["decider"], "decider")

        def score(self, request, endpoint):
            return self.decider.score(request, endpoint)

    with PluginHarness(plugin) as harness:
        yield harness


def test_an_instance_finds_those_made_before_it(deciding):
    deciding.configure("d", "decider", {"score": 0.25})
    deciding.configure("a", "asks", {"decider": "d"})
    assert deciding.score("a", {"e": {}}) == [{"e": 0.25}]
    deciding.configure("d", "decider", {"score": 0.5})
    assert deciding.score("a", {"e": {}}) == [{"e": 0.25}], "made anew, it is found by who is made after it"
    deciding.configure("a", "asks", {"decider": "d"})
    assert deciding.score("a", {"e": {}}) == [{"e": 0.5}]


def test_one_that_is_not_there_is_an_error_of_the_parameter_that_names_it(deciding):
    with pytest.raises(ParameterError, match="there is no plugin 'd' of this package") as refused:
        deciding.configure("a", "asks", {"decider": "d"})
    assert refused.value.path == "decider"


def test_those_of_one_configure_are_found_in_its_order(deciding):
    entries = [
        {"handle": [1, 8], "name": "d", "type": "decider", "parameters": {"score": 1.0}},
        {"handle": [1, 9], "name": "a", "type": "asks", "parameters": {"decider": "d"}},
    ]
    found = deciding._dispatcher.control_call(30, [{"create": entries, "drop": []}])
    assert found["errors"] == []
    assert deciding._dispatcher.known([1, 9]).object.decider is deciding._dispatcher.known([1, 8]).object
    found = deciding._dispatcher.control_call(30, [{"create": [{**entries[1], "handle": [1, 10]}], "drop": [[1, 8]]}])
    assert found["errors"] == [], "one that goes with this configure is there while it runs"
