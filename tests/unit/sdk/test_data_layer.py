"""Types of the data layer: what they declare, what their methods may return, and how a discovery tells what it finds."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hotbay_sdk import (
    Discovery,
    DiscoveryNotifier,
    EventExtractor,
    Extractor,
    Filter,
    NotificationSource,
    ObjectNotifier,
    Plugin,
    PollingSource,
    Scorer,
    WatchSource,
)
from hotbay_sdk.protocol import DataDeclaration, TypeDeclaration
from hotbay_sdk.testing import PluginCallError, PluginHarness

plugin = Plugin("kinds")
ENDPOINT = {"id": "default/a", "address": "10.0.0.1", "port": 8000}
GIVEN: list[object] = []
"""What the extractor of the next call returns, where a test says so: also what could not cross to it."""


@plugin.type(
    "depth",
    payload="metrics",
    families=["depth"],
    attributes={"depth": "f32", "count": "i64", "note": "value"},
    default_source="metrics-data-source",
)
class Depth(Extractor):
    def extract(self, payload: Any, endpoint: Mapping[str, Any]) -> Mapping[str, object]:
        return GIVEN.pop() if GIVEN else {"depth": payload["depth"][0][1]}  # type: ignore[return-value]  # the test's


@plugin.type("zone", payload="endpoint", attributes={"zone": "value"}, concurrency=2)
class Zone(EventExtractor):
    async def extract(self, event: Mapping[str, Any]) -> Mapping[str, Mapping[str, object]]:
        return {event["endpoint"]["id"]: {"zone": f"{event['number']} {event['type']}"}}


@plugin.type("pods", payload="object:/v1/Pod")
class Pods(NotificationSource):
    def notify(self, event: Mapping[str, Any]) -> Mapping[str, object] | None:
        return None if event["object"].get("hidden") else {**event, "object": {"number": event["number"]}}


@plugin.type("finder", parameters=lambda raw: raw)
class Finder(Discovery):
    def discover(self, notifier: DiscoveryNotifier) -> None:
        notifier.upsert(ENDPOINT)
        notifier.ready()
        notifier.ready()
        count = 0
        while not notifier.wait(0.5):
            count += 1
            notifier.upsert({**ENDPOINT, "weight": count / 10})
        assert self.context.cancelled
        notifier.delete("default/a")


@plugin.type("lister")
class Lister(Discovery):
    closed = 0

    def discover(self, notifier: DiscoveryNotifier) -> Iterator[None]:
        try:
            while True:
                notifier.upsert(ENDPOINT)
                yield
                notifier.ready()
                yield
        finally:
            type(self).closed += 1


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}


@plugin.type("watcher", payload="object:/v1/Pod")
class Watcher(WatchSource):
    def watch(self, notifier: ObjectNotifier) -> Iterator[None]:
        notifier.upsert(POD)
        notifier.ready()
        while not notifier.wait(0.5):
            notifier.upsert({**POD, "spec": {"rank": 1}})
            yield
        notifier.delete("a")


@plugin.type("asker", payload="json", interval_s=2.5)
class Asker(PollingSource):
    async def poll(self, endpoint: Mapping[str, Any]) -> object:
        return GIVEN.pop() if GIVEN else {"asked": endpoint["id"]}


@pytest.fixture
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        for declared in plugin.declarations:
            made.configure(declared.type, declared.type, {} if declared.type == "finder" else None)
        yield made


def test_declarations_say_what_crosses_and_what_comes_back() -> None:
    depth, zone, pods, finder, _, watcher, asker = plugin.declarations
    kinds = {"depth": "f32", "count": "i64", "note": "value"}
    assert depth.data == DataDeclaration("metrics", ("depth",), kinds, "metrics-data-source")
    assert (depth.points, zone.points, pods.points, finder.points) == (
        ("extract",),
        ("extract",),
        ("source",),
        ("discover",),
    )
    assert finder.data == DataDeclaration()
    assert (watcher.points, watcher.data) == (("watch",), DataDeclaration("object:/v1/Pod"))
    assert (asker.points, asker.data) == (("poll",), DataDeclaration("json", interval_ms=2500))


# -- extractors and sources ----------------------------------------------------------------------


def test_extractor_reads_the_declared_samples(harness: PluginHarness) -> None:
    assert harness.extract("depth", {"depth": [[{}, 3.0]]}) == {"depth": 3.0}


class Number(float):
    """A number of another library."""


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"depth": 1, "count": 2, "note": [{"a": b"x"}]},
        {"depth": Number(1), "count": True.__index__()},
        {"note": None},
    ],
)
def test_attributes_of_their_kinds_cross(harness: PluginHarness, given: Mapping[str, object]) -> None:
    GIVEN.append(given)
    assert harness.extract("depth", {}) == given


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "expected a map of attributes"),
        ({"other": 1}, "declare it"),
        ({"depth": "1"}, "expected a number"),
        ({"depth": True}, "expected a number"),
        ({"count": 1.0}, "expected a whole number of 64 bits"),
        ({"count": 2**63}, "expected a whole number of 64 bits"),
        ({"count": False}, "expected a whole number of 64 bits"),
        ({"note": {1: 2}}, "keys are str"),
        ({"note": object()}, "of type object"),
    ],
)
def test_attributes_of_another_kind_are_bad_results(harness: PluginHarness, given: object, text: str) -> None:
    GIVEN.append(given)
    with pytest.raises(PluginCallError, match=text) as failed:
        harness.extract("depth", {})
    assert failed.value.error.code == "BAD_RESULT"


def test_event_extractor_sees_the_number_of_its_event(harness: PluginHarness) -> None:
    event = {"type": "delete", "endpoint": {"id": "default/b"}}
    assert harness.event_extract("zone", event, number=7) == {"default/b": {"zone": "7 delete"}}


def test_source_changes_and_drops_events_and_does_not_number_them(harness: PluginHarness) -> None:
    event = {"type": "delete", "kind": "/v1/Pod", "key": "p", "object": {}}
    assert harness.notify("pods", event, number=3) == {**event, "object": {"number": 3}}
    assert harness.notify("pods", {**event, "object": {"hidden": True}}) is None


def test_a_raise_is_the_calls_error(harness: PluginHarness) -> None:
    with pytest.raises(PluginCallError, match="KeyError: 'depth'"):
        harness.extract("depth", {})


# -- sources that find data themselves -----------------------------------------------------------


def test_source_that_watches_tells_in_its_order_until_the_run_is_over(harness: PluginHarness) -> None:
    assert harness.watch("watcher") == [["upsert", POD], ["ready"]]
    told = harness.watch("watcher", [lambda: None])
    assert told == [["upsert", POD], ["ready"], ["upsert", {**POD, "spec": {"rank": 1}}]]


def test_source_that_is_polled_answers_for_the_endpoint(harness: PluginHarness) -> None:
    assert harness.poll("asker", {"id": "default/b"}) == {"asked": "default/b"}


def polled(payload: str, found: object) -> object:
    made = Plugin("one")

    @made.type("one", payload=payload)
    class One(PollingSource):
        def poll(self, endpoint: Mapping[str, Any]) -> object:
            return found

    with PluginHarness(made) as harness:
        harness.configure("one", "one")
        return harness.poll("one")


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        ("text", "a"),
        ("bytes", b"a"),
        ("metrics", "a 1\n"),
        ("metrics", b"a 1\n"),
        ("models", [{"id": "m"}]),
        ("json", None),
        ("json", [1, {"a": b"x"}]),
    ],
)
def test_what_a_poll_brings_crosses_as_it_is(payload: str, found: object) -> None:
    assert polled(payload, found) == found
    if isinstance(found, bytes):
        assert polled(payload, memoryview(found)) == found


@pytest.mark.parametrize(
    ("payload", "found", "text"),
    [
        ("text", b"a", "returned a bytes, expected str: the type's payload is text"),
        ("bytes", "a", "returned a str, expected bytes"),
        ("metrics", {}, "returned a dict, expected str or bytes"),
        ("models", {"data": []}, "returned a dict, expected list"),
        ("json", object(), "of type object"),
        ("json", {1: 2}, "keys are str"),
    ],
)
def test_a_payload_of_another_type_is_a_bad_result(payload: str, found: object, text: str) -> None:
    with pytest.raises(PluginCallError, match=text) as failed:
        polled(payload, found)
    assert failed.value.error.code == "BAD_RESULT"


# -- discovery -----------------------------------------------------------------------------------


def test_discovery_is_over_at_ready_where_a_test_does_nothing_more(harness: PluginHarness) -> None:
    assert harness.discover("finder") == [["upsert", ENDPOINT], ["ready"]]


def test_discovery_goes_on_while_a_test_acts(harness: PluginHarness) -> None:
    acted: list[int] = []
    told = harness.discover("finder", [lambda: acted.append(1), lambda: acted.append(2)])
    assert [event[0] for event in told] == ["upsert", "ready", "upsert", "upsert"]
    assert told[-1] == ["upsert", {**ENDPOINT, "weight": 0.2}]
    assert acted == [1, 2]


def test_generator_is_closed_when_the_run_is_over(harness: PluginHarness) -> None:
    before = Lister.closed
    assert harness.discover("lister") == [["upsert", ENDPOINT], ["ready"]]
    assert Lister.closed == before + 1


def discovery_that(act: Any) -> PluginHarness:
    made = Plugin("one")

    @made.type("one")
    class One(Discovery):
        def discover(self, notifier: DiscoveryNotifier) -> None:
            act(notifier)

    harness = PluginHarness(made)
    harness.configure("one", "one")
    return harness


def test_calls_of_another_thread_are_refused() -> None:
    refused: list[str] = []

    def act(notifier: DiscoveryNotifier) -> None:
        def other() -> None:
            for call in (lambda: notifier.upsert(ENDPOINT), lambda: notifier.delete("a"), notifier.ready):
                try:
                    call()
                except RuntimeError as error:
                    refused.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        notifier.ready()

    assert discovery_that(act).discover("one") == [["ready"]]
    assert len(refused) == 3
    assert "the thread that runs discover alone" in refused[0]


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        ({"id": object()}, "of type object"),
        ({"labels": {"a": "x" * 2**16}}, "at most 65536 cross"),
        ({1: 2}, "keys are str"),
    ],
)
def test_an_endpoint_that_cannot_cross_is_told_where_it_is_named(endpoint: dict[Any, object], text: str) -> None:
    with pytest.raises(PluginCallError, match=text):
        discovery_that(lambda notifier: notifier.upsert(endpoint)).discover("one")


def test_a_discovery_that_raises_ends_its_run(harness: PluginHarness) -> None:
    def act(notifier: DiscoveryNotifier) -> None:
        raise OSError("no route")

    with pytest.raises(PluginCallError, match="OSError: no route"):
        discovery_that(act).discover("one")


# -- what is refused -----------------------------------------------------------------------------


class Any_(Extractor):
    def extract(self, payload: Any, endpoint: Mapping[str, Any]) -> Mapping[str, object]:
        return {}


class Events(EventExtractor):
    def extract(self, event: Mapping[str, Any]) -> Mapping[str, Mapping[str, object]]:
        return {}


class Half(Scorer):
    def score(self, request: Any, endpoint: Any) -> float:
        return 0.5


class Find(Discovery):
    def discover(self, notifier: DiscoveryNotifier) -> None:
        pass


class Watch(WatchSource):
    def watch(self, notifier: ObjectNotifier) -> None:
        pass


class Poll(PollingSource):
    def poll(self, endpoint: Mapping[str, Any]) -> object:
        return None


@pytest.mark.parametrize(
    ("cls", "declaration", "text"),
    [
        (Any_, {"attributes": {"a": "f32"}}, "payload '' of an Extractor"),
        (Any_, {"payload": "endpoint", "attributes": {"a": "f32"}}, "payload 'endpoint' of an Extractor"),
        (Any_, {"payload": "json"}, "names what it may return"),
        (Any_, {"payload": "json", "attributes": {"a b": "f32"}}, "attribute 'a b'"),
        (Any_, {"payload": "json", "attributes": {"a": "f64"}}, "of kind 'f64'"),
        (Any_, {"payload": "json", "attributes": {f"a{n}": "f32" for n in range(65)}}, "at most 64"),
        (Any_, {"payload": "metrics", "attributes": {"a": "f32"}}, "names its families"),
        (Any_, {"payload": "json", "families": ["x"], "attributes": {"a": "f32"}}, "names its families"),
        (Any_, {"payload": "metrics", "families": "x", "attributes": {"a": "f32"}}, 'write \\["x"\\]'),
        (Any_, {"payload": "metrics", "families": [""], "attributes": {"a": "f32"}}, "no name of a sample"),
        (Events, {"payload": "json", "attributes": {"a": "f32"}}, "of events, expected endpoint or object"),
        (Events, {"payload": "object:v1/Pod", "attributes": {"a": "f32"}}, "of events, expected endpoint or object"),
        (
            Events,
            {"payload": "endpoint", "attributes": {"a": "f32"}, "default_source": "x"},
            "default_source is the type",
        ),
        (Half, {"payload": "json"}, "an extractor's or a source's"),
        (Find, {"payload": "json"}, "given no payload"),
        (Find, {"attributes": {"a": "f32"}}, "an extractor, and nothing else"),
        (Watch, {}, "payload '' of a WatchSource, expected object:GROUP/VERSION/KIND"),
        (Watch, {"payload": "endpoint"}, "payload 'endpoint' of a WatchSource"),
        (Watch, {"payload": "object:/v1/Pod", "interval_s": 1}, "interval_s is a PollingSource's"),
        (Poll, {"payload": "object:/v1/Pod"}, "payload 'object:/v1/Pod' of a PollingSource"),
        (Poll, {"payload": "json", "interval_s": 0.049}, "0.05 to 3600 seconds, found 0.049"),
        (Poll, {"payload": "json", "interval_s": 3600.1}, "0.05 to 3600 seconds"),
        (Poll, {"payload": "metrics", "families": ["x"]}, "names its families"),
        (Poll, {"payload": "json", "attributes": {"a": "f32"}}, "an extractor, and nothing else"),
    ],
)
def test_bad_declaration_of_the_data_layer_is_refused(cls: type, declaration: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Plugin("p").type("t", **declaration)(cls)


def test_two_kinds_of_extract_are_two_types() -> None:
    class Both(Any_, Events):  # type: ignore[misc]  # that they do not agree is what is refused
        def extract(self, *given: Any) -> Any:
            return {}

    with pytest.raises(TypeError, match="make them two types"):
        Plugin("p").type("t", payload="json", attributes={"a": "f32"})(Both)


def test_discover_and_watch_are_no_coroutines() -> None:
    class Waits(Discovery):
        async def discover(self, notifier: DiscoveryNotifier) -> None:  # type: ignore[override]  # is what is refused
            pass

    class Sees(WatchSource):
        async def watch(self, notifier: ObjectNotifier) -> None:  # type: ignore[override]  # as above
            pass

    for cls, payload in ((Waits, ""), (Sees, "object:/v1/Pod")):
        with pytest.raises(TypeError, match="no async method"):
            Plugin("p").type("t", payload=payload)(cls)


def test_who_brings_events_is_not_given_them() -> None:
    class Both(Watch, NotificationSource):
        def notify(self, event: Mapping[str, Any]) -> None:
            return None

    with pytest.raises(TypeError, match="make them two types"):
        Plugin("p").type("t", payload="object:/v1/Pod")(Both)


@pytest.mark.parametrize("interval_s", [0.05, 3600.0])
def test_the_ends_of_what_an_interval_may_be_are_among_it(interval_s: float) -> None:
    made = Plugin("p")
    made.type("t", payload="json", interval_s=interval_s)(Poll)
    (declared,) = made.declarations
    assert TypeDeclaration.from_wire(declared.to_wire()).data.interval_ms == interval_s * 1000


def test_one_type_may_poll_and_read_what_it_brought() -> None:
    class Both(Poll, Any_):
        pass

    made = Plugin("p")
    made.type("t", payload="metrics", families=["x"], attributes={"a": "f32"}, interval_s=1)(Both)
    assert set(made.declarations[0].points) == {"poll", "extract"}


@pytest.mark.parametrize(("name", "taken"), [("attribute.a", True), ("attribute.", False), ("attribute.a b", False)])
def test_attributes_are_read_like_columns(name: str, taken: bool) -> None:
    declare = Plugin("p").type("t", reads=[name])
    if taken:
        declare(Half)
    else:
        with pytest.raises(ValueError, match="which does not exist"):
            declare(Half)


def test_a_type_may_be_of_both_layers() -> None:
    class Both(Any_, Filter):
        def keep_batch(self, requests: Sequence[Any], endpoints: Any) -> object:
            return []

    made = Plugin("p")
    made.type("t", payload="json", attributes={"a": "f32"})(Both)
    assert made.declarations[0].points == ("filter", "extract")
