"""A batch crosses as a host's would, and what comes back is told in ids."""

import math
import struct

import pytest
from hotbay.authoring.arguments import Batch, picked, produced, row_errors, scored, survivors
from hotbay.authoring.inputs import EndpointRow, read_requests
from hotbay.errors import PluginFault
from hotbay_sdk.protocol import CallError, ErrorCode, TypeDeclaration
from hotbay_sdk.protocol.calls import InstanceFacts

DECLARED = TypeDeclaration(
    "t",
    ("score",),
    ("endpoint.waiting", "endpoint.num_blocks", "request.model", "request.prompt_hashes"),
    ("A.b", "A.c"),
)
ENDPOINTS = (EndpointRow("a", {"endpoint.waiting": 2.0, "A.b": 1.0, "total": 0.5}), EndpointRow("b", {}))
REQUESTS = read_requests("[{model: m, prompt: abcdefgh}, {model: n, prompt: x}]", file="f", headers={})


def batch(**changes) -> Batch:
    fields = {
        "declaration": DECLARED,
        "facts": InstanceFacts(1),
        "endpoints": ENDPOINTS,
        "requests": REQUESTS,
        **changes,
    }
    return Batch(**fields)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def test_only_declared_columns_cross_and_unknown_ones_are_marked() -> None:
    _, rows, _, ids, columns = batch().view()
    assert (rows, ids) == (2, ["a", "b"])
    assert set(columns) == {"endpoint.waiting", "endpoint.num_blocks"}
    waiting = struct.unpack("<2f", columns["endpoint.waiting"])
    assert waiting[0] == 2.0
    assert math.isnan(waiting[1])
    assert struct.unpack("<2q", columns["endpoint.num_blocks"]) == (-1, -1)


def test_attributes_cross_as_the_package_declares_them_and_else_as_f32() -> None:
    names = ("attribute.hits", "attribute.load", "attribute.none", "attribute.n/i64", "attribute.new", "attribute.text")
    declared = TypeDeclaration("t", ("score",), names)
    rows = (EndpointRow("a", {"attribute.hits": 3, "attribute.load": 41, "attribute.text": 1}), EndpointRow("b", {}))
    made = batch(declaration=declared, endpoints=rows, kinds={"hits": "i64", "new": "i64", "text": "value"})
    columns = made.view()[4]
    assert columns == {
        "attribute.hits/i64": struct.pack("<2q", 3, -1),
        "attribute.load": floats(41.0, math.nan),
        "attribute.new/i64": struct.pack("<2q", -1, -1),
    }
    assert made.request_columns()[3] == {}


def test_declared_side_tables_cross_and_no_others() -> None:
    declared = TypeDeclaration(
        "t", ("filter",), ("endpoint.labels", "endpoint.role", "endpoint.model", "request.model")
    )
    role = {"llm-d.ai/role": "decode"}
    rows = (
        EndpointRow("a", {}, {"endpoint.labels": role, "endpoint.engine": "vllm"}),
        EndpointRow("b", {}, {"endpoint.role": "prefill", "endpoint.model": "m"}),
        EndpointRow("c", {}),
    )
    made = batch(declaration=declared, endpoints=rows)
    *_, areas, (version, tables) = made.view()
    assert (areas, version) == (None, 1)
    assert tables == {
        "endpoint.labels": [[role, {}], struct.pack("<3I", 0, 1, 1)],
        "endpoint.role": [["decode", "prefill", ""], struct.pack("<3I", 0, 1, 2)],
        "endpoint.model": [["m"], struct.pack("<3I", 0xFFFFFFFF, 0, 0xFFFFFFFF)],
    }
    assert set(made.request_columns()[3]) == {"request.model"}
    assert len(batch(endpoints=rows).view()) == 5


def test_only_declared_fields_and_given_data_cross() -> None:
    size, _, _, fields, data = batch().request_columns()
    assert size == 2
    assert fields["request.model"] == ["m", "n"]
    assert [len(hashes) for hashes in fields["request.prompt_hashes/1"]] == [16, 0]
    assert set(fields) == {"request.model", "request.prompt_hashes/1"}
    assert set(data) == {"A.b"}
    assert len(data["A.b"]) == 4 * 2 * 2


def test_candidates_are_bits_of_their_rows() -> None:
    assert batch().mask() is None
    assert batch(candidates=frozenset({"b"})).mask() == b"\x02"
    assert batch(candidates=frozenset({"b"})).members == ["b"]


def test_totals_repeat_for_every_request() -> None:
    assert batch().totals() == floats(0.5, 0, 0.5, 0)


def test_scores_are_those_of_the_candidates() -> None:
    result = [None, floats(0.1, 0.2, 0.3, 0.4), []]
    assert scored(result, batch(candidates=frozenset({"b"}))) == [
        {"b": pytest.approx(0.2)},
        {"b": pytest.approx(0.4)},
    ]


def test_survivors_are_candidates_that_are_kept() -> None:
    assert survivors([b"\x03\x02", b"", []], batch()) == [["a", "b"], ["b"]]


def test_picks_are_ids() -> None:
    assert picked([[[1, 0], []], []], batch()) == [["b", "a"], []]


def test_produced_columns_have_a_number_for_each_endpoint_or_one() -> None:
    result = [{"K.row": floats(1, 2, 3, 4), "K.one/request": floats(5, 6)}, []]
    assert produced(result, batch()) == [
        {"K.row": {"a": 1, "b": 2}, "K.one": 5},
        {"K.row": {"a": 3, "b": 4}, "K.one": 6},
    ]


@pytest.mark.parametrize(
    ("read", "result"),
    [
        (scored, [None, floats(1), []]),
        (scored, [None]),
        (scored, None),
        (survivors, [b"\x03", b"", []]),
        (survivors, [None, b"", []]),
        (picked, [[[2], []], []]),
        (picked, [[[0]], []]),
        (picked, [3, []]),
        (produced, [{"K.row": floats(1)}, []]),
        (produced, [[], []]),
    ],
)
def test_results_of_another_shape_are_bad(read, result) -> None:
    with pytest.raises(PluginFault) as caught:
        read(result, batch())
    assert caught.value.code == "BAD_RESULT"


def test_errors_name_their_request() -> None:
    error = CallError(ErrorCode.PLUGIN_ERROR, "no")
    assert row_errors([None, [[0, -1, error.to_wire()]]])[0][0] == -1
    for bad in (None, [3], [[1]], [[[0, 0, 3]]], [[[0, "x", {}]]]):
        with pytest.raises(PluginFault):
            row_errors(bad)
