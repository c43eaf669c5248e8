"""What plugin processes say to the data layer, read and held against what they declared: nothing of it is trusted."""

import math
import struct
from collections.abc import Mapping
from typing import Any

import msgpack
import pytest
from hotbay.config.data_types import ObjectKind, Point, TypeForm
from hotbay.datalayer.attributes import MAX_ATTRIBUTE_BYTES
from hotbay.datalayer.discovery.places import listens_on
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState, Metrics
from hotbay.datalayer.pages.exposition import Sample
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.remote.framing import MAX_RECORD_BYTES
from hotbay.datalayer.remote.payloads import payload_to_wire
from hotbay.datalayer.remote.records import (
    Gone,
    Named,
    Record,
    RecordReader,
    Refused,
    Told,
)
from hotbay.datalayer.remote.results import MAX_ENDPOINTS_OF_EVENT, read_attributes, read_of_endpoints
from hotbay.datalayer.remote.wire_events import (
    columns_of,
    event_to_wire,
    form_of,
    object_kind_of,
    read_endpoint_news,
    read_object_event,
)
from hotbay.datalayer.source import EndpointNews, EventType, ObjectEvent
from hotbay.datalayer.sources.models import ModelsPage, ServedModel
from hotbay.errors import PluginFault
from hotbay_sdk.protocol import DataDeclaration, TypeDeclaration
from hypothesis import given
from hypothesis import strategies as st

KINDS = {"f": "f32", "i": "i64", "v": "value"}
A = EndpointMetadata("default/a", "a", "10.0.0.1", 8000, labels={"zone": "x"})


# -- attributes ----------------------------------------------------------------------------------


def test_declared_attributes_are_taken_and_nil_takes_away() -> None:
    found = {"f": 1, "i": -(2**63), "v": {"a": [b"x", True]}}
    assert read_attributes(found, KINDS) == {"f": 1.0, "i": -(2**63), "v": {"a": [b"x", True]}}
    assert read_attributes({"f": None, "v": None}, KINDS) == {"f": None, "v": None}
    assert math.isnan(read_attributes({"f": math.nan}, KINDS)["f"])  # type: ignore[arg-type]  # a number


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([], "a map of attributes"),
        (None, "a map of attributes"),
        ({"x": 1}, "attributes that the type declares: f, i, v"),
        ({"f": True}, "a number as attribute f"),
        ({"f": "1"}, "a number as attribute f"),
        ({"i": 1.0}, "a whole number of 64 bits as attribute i"),
        ({"i": 2**63}, "a whole number of 64 bits as attribute i"),
        ({"v": [None]}, "attribute v"),
        ({"v": b"x" * MAX_ATTRIBUTE_BYTES}, f"at most {MAX_ATTRIBUTE_BYTES} bytes"),
        ({"f": 1, "v": {"a": {"b": None}}}, "attribute v"),
    ],
)
def test_a_result_with_anything_else_is_refused_whole(found: Any, text: str) -> None:
    with pytest.raises(PluginFault, match=text) as refused:
        read_attributes(found, KINDS)
    assert refused.value.code == "BAD_RESULT"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([], "a map from endpoint ids"),
        ({"a": []}, "a map of attributes"),
        ({"": {}}, "endpoint ids of 1 to 512"),
        ({"a" * 513: {}}, "endpoint ids of 1 to 512"),
        ({str(n): {} for n in range(MAX_ENDPOINTS_OF_EVENT + 1)}, "at most 10000 endpoints"),
    ],
)
def test_what_an_event_says_of_endpoints_is_bounded(found: Any, text: str) -> None:
    with pytest.raises(PluginFault, match=text):
        read_of_endpoints(found, KINDS)


def test_what_an_event_says_of_endpoints_is_taken_up_to_its_bounds() -> None:
    assert read_of_endpoints({"a" * 512: {"f": 1}}, KINDS) == {"a" * 512: {"f": 1.0}}
    assert len(read_of_endpoints({str(n): {} for n in range(MAX_ENDPOINTS_OF_EVENT)}, KINDS)) == MAX_ENDPOINTS_OF_EVENT


# -- payloads and events -------------------------------------------------------------------------


def test_only_declared_samples_of_a_page_cross() -> None:
    samples = {"a": (Sample({"le": "1"}, 2.0), Sample({}, 3.0)), "b": (Sample({}, 1.0),)}
    page = MetricsPage("vllm", Metrics(), samples=samples)
    assert payload_to_wire(page, ("a", "c")) == {"a": [[{"le": "1"}, 2.0], [{}, 3.0]]}
    models = ModelsPage((ServedModel("m"), ServedModel("a", "m")))
    assert payload_to_wire(models, ()) == [{"id": "m"}, {"id": "a", "parent": "m"}]
    assert payload_to_wire({"x": 1}, ()) == {"x": 1}


def test_numbers_become_columns_and_values_do_not() -> None:
    assert columns_of(TypeDeclaration("t", (), data=DataDeclaration(attributes=KINDS))) == {"f": "f32", "i": "i64"}


def test_form_says_what_a_type_can_be() -> None:
    declared = TypeDeclaration("t", ("score", "extract"), data=DataDeclaration("object:/v1/Pod", (), {"a": "f32"}))
    assert form_of(declared) == TypeForm(frozenset({Point.EXTRACT}), ("object:/v1/Pod",))
    assert form_of(TypeDeclaration("t", ("discover",))) == TypeForm(frozenset({Point.DISCOVER}))


def test_kind_of_a_payload() -> None:
    assert object_kind_of("object:/v1/Pod") == ObjectKind("", "v1", "Pod")
    assert object_kind_of("endpoint") is None


NEWS = EndpointNews(EventType.ADD_OR_UPDATE, A)
POD = ObjectEvent(EventType.DELETE, ObjectKind("", "v1", "Pod"), "default/p", {"a": 1})


def test_a_source_may_change_an_object_and_drop_it() -> None:
    told = event_to_wire(POD)
    assert told == {"type": "delete", "kind": "/v1/Pod", "key": "default/p", "object": {"a": 1}}
    changed = read_object_event({**told, "object": {"b": 2}, "key": "other"}, POD)  # type: ignore[dict-item]  # plain
    assert changed == ObjectEvent(POD.type, POD.kind, POD.key, {"b": 2})
    assert read_object_event(None, POD) is None


def test_a_source_may_change_labels_of_an_endpoint_and_nothing_else_of_it() -> None:
    told: dict[str, Any] = event_to_wire(NEWS)
    told["endpoint"] |= {"labels": {"zone": "y"}, "address": "10.9.9.9", "state": "cordoned"}
    changed = read_endpoint_news(told, NEWS)
    assert changed is not None
    assert (changed.endpoint.labels, changed.endpoint.address, changed.endpoint.state) == (
        {"zone": "y"},
        "10.0.0.1",
        EndpointState.ACTIVE,
    )
    assert read_endpoint_news(None, NEWS) is None


@pytest.mark.parametrize(
    "found",
    [
        [],
        {},
        {"type": "upsert", "endpoint": {"id": "default/a"}},
        {"type": "delete", "endpoint": {"id": "default/b"}},
        {"type": "delete", "endpoint": {"id": "default/a", "labels": {"a": 1}}},
        {"type": "delete", "endpoint": {"id": "default/a", "labels": {str(n): "" for n in range(257)}}},
        {"type": "delete", "endpoint": {"id": "default/a", "labels": {"a": "x" * 4097}}},
    ],
)
def test_an_event_of_another_form_is_refused(found: Any) -> None:
    with pytest.raises(PluginFault):
        read_endpoint_news(found, NEWS)
    with pytest.raises(PluginFault):
        read_object_event(found, POD)


# -- records of a discovery ----------------------------------------------------------------------


def packed(*values: object) -> bytes:
    bodies = [msgpack.packb(value) for value in values]
    return b"".join(struct.pack(">I", len(body)) + body for body in bodies)


def read(data: bytes) -> list[Record]:
    return list(RecordReader("it").feed(data))


ENTRY: Mapping[str, object] = {"id": "default/a", "address": "10.0.0.1", "port": "8000", "labels": {"zone": "x"}}


@given(st.lists(st.integers(0, 40), max_size=8))
def test_records_are_read_however_their_bytes_are_cut(cuts: list[int]) -> None:
    data = packed(["upsert", dict(ENTRY)], ["delete", "default/b"], ["ready"])
    reader, found, position = RecordReader("it"), [], 0
    for cut in cuts:
        found += reader.feed(data[position : position + cut])
        position += cut
    found += reader.feed(data[position:])
    assert found == [Named(A), Gone("default/b"), Told()]


def test_an_endpoint_may_be_named_by_its_parts() -> None:
    entry = {
        "name": "b",
        "namespace": "n",
        "address": "::1",
        "port": 1,
        "state": "cordoned",
        "weight": 0.5,
        "ports": [1],
    }
    expected = EndpointMetadata("n/b", "b", "::1", 1, state=EndpointState.CORDONED, weight=0.5)
    assert read(packed(["upsert", entry])) == [Named(expected)]


@pytest.mark.parametrize(
    ("change", "endpoint_id"),
    [
        ({"address": "a.host"}, "default/a"),
        ({"port": 0}, "default/a"),
        ({"port": True}, "default/a"),
        ({"labels": {"a": 1}}, "default/a"),
        ({"labels": b"x"}, "default/a"),
        ({"state": "gone"}, "default/a"),
        ({"weight": 2}, "default/a"),
        ({"id": "a b"}, ""),
        ({"id": 7}, ""),
    ],
)
def test_an_endpoint_is_held_to_the_rules_of_files(change: dict[str, object], endpoint_id: str) -> None:
    (found,) = read(packed(["upsert", {**ENTRY, **change}]))
    assert isinstance(found, Refused)
    assert (found.item_id, found.problem.place) == (endpoint_id, None)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fe80::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::6464:64c8",
        "64:ff9b:1::a9fe:a9fe",
        "64:ff9b::ffff:ffff",
        "2002:a9fe:a9fe::1",
        "::169.254.169.254",
        "::ffff:0:a9fe:a9fe",
        "2001:0:a9fe:a9fe::1",
    ],
)
def test_plugin_names_no_address_that_is_no_model_servers_anywhere(address: str) -> None:
    bracketed = f"[{address}]" if ":" in address else address
    for field, value in (("address", address), ("metricsHost", f"{bracketed}:80"), ("nodeAddress", address)):
        (found,) = read(packed(["upsert", {**ENTRY, field: value}]))
        assert isinstance(found, Refused)
        assert found.item_id == "default/a"
        assert (found.problem.path or "").endswith(field)


@pytest.mark.parametrize(
    "address", ["64:ff9b::a00:1", "2002:a00:1::1", "2001:db8::1", "::1", "fd00::a9fe:a9fe", "127.0.0.1"]
)
def test_plugin_may_name_an_address_that_leads_to_no_such_place(address: str) -> None:
    assert isinstance(read(packed(["upsert", {**ENTRY, "address": address}]))[0], Named)


@pytest.mark.parametrize(
    "name", ["metadata.google.internal", "Metadata.Google.Internal.", "metadata", "metadata.goog", "instance-data"]
)
def test_plugin_does_not_name_a_metadata_service_by_its_name(name: str) -> None:
    for field, value in (("metricsHost", f"{name}:80"), ("nodeAddress", name)):
        (found,) = read(packed(["upsert", {**ENTRY, field: value}]))
        assert isinstance(found, Refused)
        assert (found.problem.code, found.problem.path) == ("ADDRESS_REFUSED", field)


@pytest.mark.parametrize("name", ["0xa9fea9fe", "169.0xFEA9FE", "0xa9fea9fe.", "a.0x"])
def test_plugin_names_no_number_that_a_resolver_takes_for_an_address(name: str) -> None:
    for field, value in (("metricsHost", f"{name}:80"), ("nodeAddress", name)):
        (found,) = read(packed(["upsert", {**ENTRY, field: value}]))
        assert isinstance(found, Refused)
        assert (found.problem.code, found.problem.path) == ("ADDRESS_REFUSED", field)


@pytest.mark.parametrize("name", ["metrics.example", "0x7f.example", "a0x1", "x", "metadata.example", "localhost"])
def test_plugin_may_name_where_metrics_are_by_a_name(name: str) -> None:
    for field, value in (("metricsHost", f"{name}:80"), ("nodeAddress", name)):
        (found,) = read(packed(["upsert", {**ENTRY, field: value}]))
        assert isinstance(found, Named)


def test_plugin_does_not_name_its_own_host_as_a_model_server() -> None:
    reader = RecordReader("it", listens_on("127.0.0.1", 8080))
    for field, value in (
        ("address", "127.0.0.1"),
        ("metricsHost", "localhost:8080"),
        ("metricsHost", "[64:ff9b::7f00:1]:8080"),
    ):
        (found,) = reader.feed(packed(["upsert", {**ENTRY, "port": 8080, field: value}]))
        assert isinstance(found, Refused)
        assert found.problem.expected == "an address that is not this host's own"
    (found,) = reader.feed(packed(["upsert", {**ENTRY, "address": "127.0.0.1", "port": 8081}]))
    assert isinstance(found, Named)


def test_record_costs_by_its_length_and_by_being_refused() -> None:
    reader = RecordReader("it")
    large = {**ENTRY, "labels": {"a": "x" * 1024}}
    records = reader.feed(packed(["upsert", dict(ENTRY)], ["upsert", large], ["upsert", {}]))
    assert [reader.cost for _ in records] == [1, 3, 11]


@pytest.mark.parametrize("count", [256, 257])
def test_labels_are_bounded_in_number(count: int) -> None:
    (found,) = read(packed(["upsert", {**ENTRY, "labels": {f"l{n}": "" for n in range(count)}}]))
    assert isinstance(found, Named) is (count == 256)


def test_of_labels_that_are_all_wrong_the_first_one_is_told() -> None:
    (found,) = read(packed(["upsert", {**ENTRY, "labels": {f"l{n}": n for n in range(200)}}]))
    assert isinstance(found, Refused)
    assert (found.item_id, found.problem.path) == ("default/a", "endpoints[0].labels.l0")


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", MAX_RECORD_BYTES + 1),
        packed("ready"),
        packed(["ready", 1]),
        packed(["upsert", "default/a"]),
        packed(["delete", 1]),
        packed([]),
        struct.pack(">I", 1) + b"\xc1",
        struct.pack(">I", 0),
    ],
)
def test_bytes_that_are_no_records_end_the_run(data: bytes) -> None:
    with pytest.raises(PluginFault) as broken:
        read(data)
    assert broken.value.code == "BAD_RESULT"


def test_a_record_of_the_largest_size_is_read() -> None:
    labels = {f"l{n:02}": "x" * 4050 for n in range(16)}
    body = packed(["upsert", {**ENTRY, "labels": labels}])
    assert MAX_RECORD_BYTES - 1024 < len(body) <= MAX_RECORD_BYTES
    (found,) = read(body)
    assert isinstance(found, Named)
