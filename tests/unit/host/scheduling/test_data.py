"""Data between plugins: whose columns cross to whom, in which order they are made, and what is missing."""

from collections.abc import Callable, Mapping, Sequence

import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.errors import InputError
from hotbay.rpc.leases import Generation, Origin
from hotbay.scheduling.compiler import compile_plan
from hotbay.scheduling.data_graph import DataGraph
from hotbay.scheduling.plan import Plan, PlanInput, ProfileEntryPlan, ProfileInput, RefPlan
from hotbay.scheduling.producers import missing_producers
from hotbay_sdk import Context, DataProducer, Endpoint, Endpoints, Plugin, Request, Scorer
from hotbay_sdk._results import texts
from hotbay_sdk.protocol import TypeDeclaration
from hotbay_sdk.protocol.calls import MAX_TEXT_BYTES, InstanceFacts

IDLE = Metrics(waiting=0.0)
DEFAULTS = {"A": "default-maker"}


class Graph:
    """Refs of one process, by what they make and take."""

    def __init__(self, *, known: bool = True) -> None:
        self.generation = Generation(1, Origin("p", "1.0.0", 1, "sha256:0"), None, {}, 1)  # type: ignore[arg-type]
        self.refs: list[RefPlan] = [] if known else [RefPlan("later", "later", "q", None, None, {})]

    def add(
        self,
        name: str,
        *,
        points: Sequence[str] = ("score",),
        produces: Sequence[str] = (),
        consumes: Sequence[str] = (),
        optional: Sequence[str] = (),
        reads: Sequence[str] = (),
        facts: InstanceFacts | None = None,
        type_name: str = "",
    ) -> "Graph":
        points = ("produce",) if produces else points
        kind = type_name or name
        declared = TypeDeclaration(
            kind, tuple(points), tuple(reads), tuple(consumes), tuple(produces), optional=tuple(optional)
        )
        self.generation.handles[name] = len(self.generation.handles) + 1
        if facts is not None:
            self.generation.facts[name] = facts
        self.refs.append(RefPlan(name, kind, "p", self.generation, declared, {}))
        return self

    def plan(self, *profile: str) -> Plan:
        made = (ProfileInput("default", tuple(ProfileEntryPlan(name) for name in profile)),)
        return compile_plan(1, PlanInput(tuple(self.refs), made, {}, default_producers=DEFAULTS))

    def problems(self, *profile: str) -> str:
        with pytest.raises(InputError) as caught:
            self.plan(*profile)
        return "\n".join(f"{p.message} {p.hint}" for p in caught.value.problems)

    def layers(self) -> list[list[str]]:
        layers = DataGraph(self.refs, DEFAULTS, complete=True).layers()
        assert isinstance(layers, list)
        return [[ref.name for ref in layer] for layer in layers]

    def consumed(self, name: str) -> list[tuple[str, str]]:
        graph = DataGraph(self.refs, DEFAULTS, complete=True)
        assert graph.problems == []
        return [tuple(source) for source in graph.consumed([ref for ref in self.refs if ref.name == name])]


def test_producers_run_in_the_order_of_what_they_need_and_of_what_is_optional() -> None:
    graph = Graph()
    graph.add("c", produces=["C.x"], consumes=["B.x"]).add("b", produces=["B.x"], optional=["A.x"])
    graph.add("a", produces=["A.x"]).add("d", produces=["D.x"], optional=["Nobody.x"])
    assert graph.layers() == [["a", "d"], ["b"], ["c"]]


def test_named_producer_is_taken_and_orders() -> None:
    graph = Graph()
    graph.add("late", produces=["L.x"], consumes=["A/two.x"]).add("one", produces=["A.x"]).add("two", produces=["A.x"])
    assert graph.layers() == [["one", "two"], ["late"]]
    assert graph.consumed("late") == [("A/two.x", "two/A.x")]


def test_only_producer_is_meant_without_a_name() -> None:
    graph = Graph().add("one", produces=["A.x"]).add("s", consumes=["A.x"])
    assert graph.consumed("s") == [("A.x", "one/A.x")]


@pytest.mark.parametrize("names", [["mine", "default-maker"], ["default-maker", "mine"]])
def test_of_several_the_instance_of_the_keys_default_type_is_meant(names: list[str]) -> None:
    graph = Graph()
    for name in names:
        graph.add(name, produces=["A.x"])
    assert graph.add("s", consumes=["A.x"]).consumed("s") == [("A.x", "default-maker/A.x")]


def test_of_several_instances_of_the_default_type_the_one_with_its_name_is_meant() -> None:
    graph = Graph()
    for name in ("m1", "default-maker", "m2"):
        graph.add(name, produces=["A.x"], type_name="default-maker")
    assert graph.add("s", consumes=["A.x"]).consumed("s") == [("A.x", "default-maker/A.x")]


def test_several_producers_of_which_none_is_the_default_are_named() -> None:
    graph = Graph().add("one", produces=["B.x"]).add("two", produces=["B.x"]).add("s", consumes=["B.x"])
    assert "'s' consumes B.x, which 'one' and 'two' produce" in graph.problems("s")
    both = Graph()
    for name in ("m1", "m2"):
        both.add(name, produces=["A.x"], type_name="default-maker")
    assert "'m1' and 'm2' produce" in both.add("s", consumes=["A.x"]).problems("s")


def test_two_producers_of_one_column_that_nobody_asks_for_without_a_name_are_fine() -> None:
    graph = Graph().add("one", produces=["B.x"]).add("two", produces=["B.x"])
    graph.add("s", consumes=["B/one.x"], optional=["B/two.x"])
    assert graph.consumed("s") == [("B/one.x", "one/B.x"), ("B/two.x", "two/B.x")]


def test_e20_what_is_needed_and_not_made_is_an_error_and_what_is_optional_is_absent() -> None:
    assert (
        "'s' of type 's' needs A.x, which nothing produces list one that does under plugins, as type default-maker"
        in (Graph().add("s", consumes=["A.x"]).problems("s"))
    )
    named = Graph().add("one", produces=["A.x"]).add("s", consumes=["A/two.x"])
    assert "needs A/two.x, and no 'two' that makes it is under plugins" in named.problems("s")
    assert Graph().add("s", optional=["A.x", "A/two.x"]).consumed("s") == []


def test_e20_nothing_is_missing_before_every_plugin_said_what_it_makes() -> None:
    plan = Graph(known=False).add("s", consumes=["A.x"]).plan("s")
    assert plan.profiles["default"].stages[0][0].consumed == ()


def test_e20_circle_names_who_is_in_it() -> None:
    graph = Graph().add("a", produces=["A.x"], consumes=["B.x"]).add("b", produces=["B.x"], optional=["A.x"])
    assert "producers need each other in a circle: " in graph.problems()


def test_e20_who_acts_before_anything_is_made_consumes_nothing() -> None:
    graph = Graph().add("one", produces=["A.x"]).add("s", points=["screen"], consumes=["A.x"])
    assert "'s' consumes A.x, and acts before anything is made" in graph.problems()
    also = Graph().add("one", produces=["A.x"]).add("s", points=["screen", "score"], consumes=["A.x"])
    plan = also.plan("s")
    assert plan.profiles["default"].stages[0][0].consumed == (("A.x", "one/A.x"),)
    assert [call.consumed for _, stage in plan.before for call in stage] == [(), ()]


def test_who_answers_no_call_may_say_what_it_needs() -> None:
    decider = Graph().add("one", produces=["A.x"]).add("d", points=["dump_state"], consumes=["A.x"]).add("s")
    assert decider.plan("s").profiles["default"].stages[0][0].consumed == ()
    alone = Graph().add("d", points=["dump_state"], consumes=["A.x"]).add("s")
    assert "needs A.x, which nothing produces" in alone.problems("s")


@pytest.mark.parametrize("name", ["A", "A.", ".x", "A/.x", "A/two", "A/two.x/y"])
def test_name_that_is_no_column_is_refused(name: str) -> None:
    assert f"consumes '{name}': a column is Key.field" in Graph().add("s", consumes=[name]).problems("s")


# -- instances -------------------------------------------------------------------------------------


def test_instance_adds_to_what_its_type_takes_where_a_wildcard_allows_it() -> None:
    graph = Graph().add("one", produces=["A.x", "A.y"])
    graph.add(
        "s",
        consumes=["*"],
        reads=["request.model", "request.headers[*]", "attribute.*"],
        facts=InstanceFacts(
            reads=("request.headers[x-session]", "attribute.zone"), consumes=("A/one.x",), optional=("A.y", "B.z")
        ),
    )
    [[call]] = graph.plan("s").profiles["default"].stages
    assert call.consumed == (("A/one.x", "one/A.x"), ("A.y", "one/A.y"))
    assert call.fields == ("request.model", "request.headers[x-session]")
    assert call.columns == ("attribute.zone",)


def test_wildcards_alone_cross_nothing() -> None:
    graph = Graph().add("s", consumes=["*"], reads=["request.headers[*]", "request.attributes[*]", "attribute.*"])
    [[call]] = graph.plan("s").profiles["default"].stages
    assert (call.consumed, call.fields, call.columns) == ((), (), ())


def test_instance_that_wants_more_than_its_type_allows_is_refused() -> None:
    facts = InstanceFacts(reads=("request.headers[x-a]", "attribute.zone"), consumes=("A.x",), optional=("B.x",))
    text = Graph().add("a", produces=["A.x"]).add("s", reads=["attribute.*"], facts=facts).problems("s")
    assert "'s' wants request.headers[x-a], A.x, B.x, which its type 's' does not declare" in text


def test_default_producer_of_a_named_column_is_made_where_the_name_is_its_type() -> None:
    graph = Graph().add("s", consumes=["A/default-maker.x"])
    assert missing_producers(graph.refs, DEFAULTS) == ("default-maker",)
    other = Graph().add("s", consumes=["A/other.x", "*", "B.x"], optional=["A.x"])
    assert missing_producers(other.refs, DEFAULTS) == ()


# -- through the router ----------------------------------------------------------------------------


def makers() -> Plugin:
    plugin = Plugin("makers")

    @plugin.type(
        "maker", reads=["request.id"], produces={"Data.rows": "row", "Data.number": "request", "Data.text": "text"}
    )
    class Maker(DataProducer):
        def __init__(self, context: Context) -> None:
            self._name = context.name

        def produce(self, request: Request, endpoints: Endpoints) -> Mapping[str, object]:
            size = float(len(self._name))
            text = None if request.id == "r1" else f"{self._name} {request.id}"
            return {"Data.rows": [size] * len(endpoints.ids), "Data.number": size, "Data.text": text}

    return plugin


def test_columns_of_two_producers_cross_under_the_names_by_which_they_are_asked_for(in_loop: Callable) -> None:
    seen: list[object] = []
    plugin = makers()
    named = ("Data/long-name.rows", "Data/long-name.number", "Data/long-name.text", "Data/one.text")

    @plugin.type("taker", consumes=named, reads=["request.id"])
    class Taker(Scorer):
        def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> object:
            for index, request in enumerate(requests):
                rows = endpoints.data("Data/long-name.rows").tolist()[index]
                texts = (request.text("Data/long-name.text"), request.text("Data/one.text"))
                seen.append((rows, request.data("Data/long-name.number"), *texts))
            return [[0.0] * len(endpoints.ids) for _ in requests]

    async def body(bay) -> None:
        bay.endpoints(a=IDLE, b=IDLE)
        bay.plugin(plugin, [("t", "taker", {}), ("one", "maker", {}), ("long-name", "maker", {})])
        bay.publish("t")
        await bay.decide(2)
        assert seen == [([9.0, 9.0], 9.0, "long-name r0", "one r0"), ([9.0, 9.0], 9.0, "", "")]

    in_loop(body)


def test_data_that_was_not_declared_reads_as_absent_and_does_not_cross(in_loop: Callable) -> None:
    plugin = makers()

    @plugin.type("taker", consumes=["Data.number"])
    class Taker(Scorer):
        def score(self, request: Request, endpoint: Endpoint) -> float:
            return 0.0

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(plugin, [("t", "taker", {}), ("one", "maker", {})])
        bay.publish("t")
        await bay.decide()
        assert client.arguments[-1][3][4].keys() == {"Data.number/request"}

    in_loop(body)


def test_data_of_a_request_dies_with_its_cycle(in_loop: Callable) -> None:
    async def body(bay) -> None:
        kept: list[dict[str, object]] = []
        finish = bay.router._finish
        bay.router._finish = lambda cycle: (kept.append(cycle.data), finish(cycle))
        bay.endpoints(a=IDLE)
        bay.plugin(makers(), [("one", "maker", {})])
        bay.publish()
        [first] = await bay.decide()
        await bay.decide()
        assert kept[0].keys() == {"one/Data.rows", "one/Data.number", "one/Data.text"}
        assert kept[0] is not kept[1]
        assert not any(value is kept[0] for value in first)

    in_loop(body)


@pytest.mark.parametrize(
    "bad",
    [["x"], ["x", 7], "xy", ["x", "y", "z"], ["x", "y" * 4097], ["x", "ü" * 2049]],
    ids=["too-few", "number", "text", "too-many", "too-long", "too-many-bytes"],
)
def test_text_column_of_the_wrong_form_is_a_bad_result(in_loop: Callable, bad: object) -> None:
    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(makers(), [("one", "maker", {})])
        bay.publish()
        client.tamper = lambda result: [{"Data.text/text": bad}, []]
        answers = await bay.decide(2)
        assert [answer.degraded for answer in answers] == [(("one", "BAD_RESULT"),)] * 2

    in_loop(body)


@pytest.mark.parametrize("longest", ["y" * MAX_TEXT_BYTES, "ü" * (MAX_TEXT_BYTES // 2)], ids=["ascii", "others"])
def test_longest_text_is_what_the_sdk_lets_cross(in_loop: Callable, longest: str) -> None:
    assert len(texts([longest], 1, "text")) == 1

    async def body(bay) -> None:
        bay.endpoints(a=IDLE)
        client = bay.plugin(makers(), [("one", "maker", {})])
        bay.publish()
        client.tamper = lambda result: [{"Data.text/text": ["x", longest]}, []]
        assert [answer.degraded for answer in await bay.decide(2)] == [(), ()]

    in_loop(body)
