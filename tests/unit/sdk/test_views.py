"""What authors read: every documented field, unknown values, undeclared reads."""

import math
import struct

import numpy as np
import pytest
from hotbay_sdk import Endpoint, Plugin, Scorer, UndeclaredReadError
from hotbay_sdk._batch import Batch, take_view
from hotbay_sdk._context import Context
from hotbay_sdk._errors import CallFailedError
from hotbay_sdk._instances import Instance
from hotbay_sdk.protocol.calls import COLUMN_FORMATS, REQUEST_FIELDS, InstanceFacts, Requests


def an_instance(reads=(), consumes=(), block_tokens=None):
    plugin = Plugin("test")

    @plugin.type("any", reads=reads, consumes=consumes)
    class Any(Scorer):
        def score(self, request, endpoint):
            return 1.0

    spec = plugin._find("any")
    assert spec is not None
    return Instance(spec, Context("ref", "any"), None, InstanceFacts(block_tokens))


def a_batch(columns=None, *, fields=None, data=None, size=1, masks=None):
    view = take_view([5, 3, 1, ["a", "", "c"], columns or {}], None)
    return Batch(view, Requests(size, [], None, fields or {}, data or {}), masks or [view.live] * size)


@pytest.mark.parametrize("name", sorted(COLUMN_FORMATS))
def test_every_column_has_a_property(name):
    code = COLUMN_FORMATS[name]
    batch = a_batch({name: struct.pack(f"<3{code}", 1, 2, 3)})
    first, last = batch.endpoints(an_instance([name]))
    attribute = name.removeprefix("endpoint.")
    assert (getattr(first, attribute), last.column(name)) == (1, 3)
    (unknown, _) = a_batch().endpoints(an_instance([name]))
    value = getattr(unknown, attribute)
    assert value == -1 if code == "q" else math.isnan(value)
    (undeclared, _) = a_batch({name: bytes(24)[: 3 * struct.calcsize(code)]}).endpoints(an_instance())
    with pytest.raises(UndeclaredReadError, match=name):
        getattr(undeclared, attribute)


def test_an_attributes_column_has_the_format_under_which_it_came():
    sent = {
        "attribute.load": struct.pack("<3f", 0.5, math.nan, math.nan),
        "attribute.hits/i64": struct.pack("<3q", 2**40, -1, -1),
    }
    names = ["attribute.load", "attribute.hits", "attribute.none", "attribute.hits/i64"]
    endpoints = a_batch(sent).endpoints(an_instance(names))
    first, last = endpoints
    assert [first.column(name) for name in names[:2]] == [0.5, 2**40]
    assert math.isnan(last.column("attribute.load"))
    assert last.column("attribute.hits") == -1
    assert [endpoints.column(name).format for name in names] == ["f", "q", "f", "f"]
    # What nobody makes is unknown, and so is an attribute whose own name ends as int64 does on the wire.
    assert all(math.isnan(first.column(name)) for name in names[2:])
    with pytest.raises(UndeclaredReadError, match=r"attribute\.hits"):
        a_batch(sent).endpoints(an_instance()).column("attribute.hits")


def test_a_type_that_reads_attributes_alone_is_not_run_without_columns():
    held = take_view([5, 1, 1, ["a"], None], None)
    with pytest.raises(CallFailedError) as failed:
        held.columns_of(an_instance(["attribute.load"]))
    assert failed.value.error.details == {"missing": "columns"}


@pytest.mark.parametrize("name", sorted(REQUEST_FIELDS))
def test_every_request_field_has_a_property(name):
    attribute = name.removeprefix("request.")
    (request,) = a_batch().requests(an_instance())
    with pytest.raises(UndeclaredReadError, match=name):
        getattr(request, attribute)
    (request,) = a_batch().requests(an_instance([name], block_tokens=16))
    assert not getattr(request, attribute)


def test_request_fields_are_typed():
    fields = {
        "request.model": ["m"],
        "request.priority": [3],
        "request.messages": [[{"role": "user"}]],
        "request.headers[x-a]": ["v"],
        "request.headers[x-b]": [None],
        "request.prompt_hashes/64": [struct.pack("<2Q", 7, 2**63)],
        "request.prompt_hashes/16": [b""],
    }
    reads = ["request.model", "request.priority", "request.messages", "request.prompt_hashes"]
    reads += ["request.headers[X-A]", "request.headers[x-b]"]
    (request,) = a_batch(fields=fields).requests(an_instance(reads, block_tokens=64))
    assert (request.model, request.priority, request.messages) == ("m", 3, [{"role": "user"}])
    assert request.header("X-a") == "v"
    assert request.header("x-b") is None
    assert request.prompt_hashes.tolist() == [7, 2**63]
    with pytest.raises(UndeclaredReadError, match=r"request.headers\[x-c\]"):
        request.header("x-c")


def test_columns_reach_numpy_without_a_copy_and_are_read_only():
    batch = a_batch({"endpoint.waiting": struct.pack("<3f", 1, 2, 3)})
    endpoints = batch.endpoints(an_instance(["endpoint.waiting"]))
    column = np.asarray(endpoints.column("endpoint.waiting"))
    assert column.tolist() == [1, 2, 3]
    assert not column.flags.writeable
    assert not column.flags.owndata


def test_masks_and_rows_are_by_request():
    endpoints = a_batch(size=2, masks=[0b101, 0b100]).endpoints(an_instance())
    assert (endpoints.mask(0), endpoints.mask(1)) == (b"\x01\x00\x01", b"\x00\x00\x01")
    assert (list(endpoints.rows(0)), list(endpoints.rows(1))) == ([0, 2], [2])
    assert [endpoint.id for endpoint in endpoints] == ["a", "c"]
    assert (len(endpoints), endpoints.epoch, list(endpoints.ids)) == (3, 5, ["a", "", "c"])


def test_data_has_the_shape_of_its_scope():
    data = {"M.row": struct.pack("<6f", *range(6)), "M.whole/request": struct.pack("<2f", 10, 11)}
    batch = a_batch(size=2, data=data)
    instance = an_instance(consumes=["M.row", "M.whole", "M.absent"])
    endpoints = batch.endpoints(instance)
    assert endpoints.data("M.row").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert endpoints.data("M.whole").tolist() == [10, 11]
    assert endpoints.data_row("M.row", 1).tolist() == [3, 4, 5]
    second = endpoints._for_request(1)
    assert second.data("M.row").tolist() == [[3, 4, 5]]
    assert second.data("M.whole").tolist() == [11]
    assert [endpoint.data("M.row") for endpoint in second] == [3, 5]
    assert np.isnan(np.asarray(endpoints.data("M.absent"))).all()
    assert [request.data("M.whole") for request in batch.requests(instance)] == [10, 11]
    with pytest.raises(UndeclaredReadError, match=r'consumes=\["M.other"\]'):
        endpoints.data("M.other")


def test_views_have_no_other_attributes():
    (first, _) = a_batch().endpoints(an_instance())
    assert isinstance(first, Endpoint)
    with pytest.raises(AttributeError):
        first.color = "red"  # type: ignore[attr-defined]
