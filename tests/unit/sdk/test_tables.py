"""Side tables as authors read them: by endpoint, by table, and not at all where they are not declared."""

import struct

import numpy as np
import pytest
from hotbay_sdk import Plugin, Scorer, UndeclaredReadError
from hotbay_sdk._batch import Batch, take_view
from hotbay_sdk._context import Context
from hotbay_sdk._errors import CallFailedError
from hotbay_sdk._instances import NO_FACTS, Instance
from hotbay_sdk.protocol.calls import SIDE_TABLES, UNKNOWN_CODE, Requests
from hotbay_sdk.protocol.messages import MalformedMessageError
from hotbay_sdk.protocol.tables import encode_table
from hypothesis import given
from hypothesis import strategies as st

ROWS = {
    "endpoint.labels": [{"zone": "x"}, None, {}],
    "endpoint.active_models": [{"m": 1, "n": 0}, None, None],
    "endpoint.waiting_models": [{}, None, {"m": 2}],
    "endpoint.model": ["llama", None, None],
    "endpoint.engine": ["vllm", None, "vllm"],
    "endpoint.role": ["decode", None, ""],
    "endpoint.address": ["h:1", None, "h:2"],
}
UNKNOWN = {"texts": {}, "counts": {}, "text": ""}


def codes(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def encoded(*names: str) -> dict[str, object]:
    return {name: encode_table(name, ROWS[name]) for name in names}


def an_instance(*reads: str) -> Instance:
    plugin = Plugin("test")

    @plugin.type("+".join(reads) or "nothing", reads=reads)
    class Any(Scorer):
        def score(self, request, endpoint):
            return 1.0

    spec = plugin._find("+".join(reads) or "nothing")
    assert spec is not None
    return Instance(spec, Context("ref", "any"), None, NO_FACTS)


def a_view(told, held=None, *, epoch=5):
    return take_view([epoch, 3, 1, ["a", "", "c"], {}, None, told], held)


def endpoints(view, *reads: str):
    return Batch(view, Requests(1, [], None, {}, {}), [view.live]).endpoints(an_instance(*reads))


@pytest.mark.parametrize("name", sorted(SIDE_TABLES))
def test_every_table_has_a_property(name):
    view = a_view([1, encoded(name)])
    found = [getattr(one, name.removeprefix("endpoint.")) for one in endpoints(view, name)]
    unknown = UNKNOWN[SIDE_TABLES[name]]
    assert found == [unknown if value is None else value for value in (ROWS[name][0], ROWS[name][2])]
    (first, _) = endpoints(view)
    with pytest.raises(UndeclaredReadError, match=name):
        getattr(first, name.removeprefix("endpoint."))


def test_a_table_is_values_and_codes_that_numpy_reads():
    values, numbers = endpoints(a_view([1, encoded("endpoint.engine")]), "endpoint.engine").table("endpoint.engine")
    assert list(values) == ["vllm"]
    column = np.asarray(numbers)
    assert (column.dtype, column.tolist(), column.flags.writeable) == (np.uint32, [0, UNKNOWN_CODE, 0], False)


def test_what_is_not_declared_or_does_not_exist_is_refused():
    view = a_view([1, encoded("endpoint.labels", "endpoint.engine")])
    found = endpoints(view, "endpoint.labels")
    with pytest.raises(UndeclaredReadError, match=r"endpoint\.engine"):
        found.table("endpoint.engine")
    with pytest.raises(ValueError, match=r"endpoint\.waiting is no side table; those are endpoint\.labels, "):
        found.table("endpoint.waiting")
    with pytest.raises(ValueError, match=r"endpoint\.labels is no column of numbers"):
        found.column("endpoint.labels")
    with pytest.raises(UndeclaredReadError, match=r"endpoint\.engine"):
        found.column("endpoint.engine")


@pytest.mark.parametrize(
    ("name", "known"),
    [("endpoint.labels", True), ("endpoint.role", True), ("endpoint.label", False), ("endpoint.models", False)],
)
def test_reads_name_tables_that_exist(name, known):
    if known:
        assert an_instance(name, "endpoint.waiting").scope.tables == {name}
    else:
        with pytest.raises(ValueError, match="which does not exist, did you mean"):
            an_instance(name)


def test_nobody_changes_what_others_read():
    (first, last) = endpoints(a_view([1, encoded(*ROWS)]), *ROWS)
    for found in (first.labels, first.active_models, last.active_models, last.labels):
        with pytest.raises(TypeError):
            found["new"] = 1


def test_tables_are_decoded_once_for_all_epochs_and_types():
    view = a_view([1, encoded("endpoint.labels")])
    values, _ = endpoints(view, "endpoint.labels").table("endpoint.labels")
    later = a_view([1, None], view, epoch=6)
    assert endpoints(later, "endpoint.labels").table("endpoint.labels")[0] is values
    added = a_view([2, encoded("endpoint.engine"), 1], later, epoch=7)
    assert endpoints(added, "endpoint.labels").table("endpoint.labels")[0] is values
    whole = a_view([3, encoded("endpoint.engine")], added, epoch=8)
    assert whole.tables is not None
    assert set(whole.tables.by_name) == {"endpoint.engine"}


def test_a_view_of_the_same_epoch_takes_tables_that_come_later():
    first = take_view([5, 3, 1, ["a", "", "c"], {}], None)
    assert a_view([1, encoded("endpoint.labels")], first).tables is not None
    assert take_view([5, 3, 1, None, None], first) is first
    second = a_view([1, encoded("endpoint.labels")], first)
    assert take_view([5, 3, 1, None, None, None, [1, None]], second) is second
    # A call that says nothing of them takes none away.
    assert take_view([6, 3, 1, None, {}], second).tables is second.tables


@pytest.mark.parametrize("columns", [{"endpoint.waiting": struct.pack("<3f", 1, 2, 3)}, {}])
def test_tables_that_come_later_take_no_columns_away(columns):
    first = take_view([5, 3, 1, ["a", "", "c"], columns], None)
    second = take_view([5, 3, 1, None, None, None, [1, encoded("endpoint.labels")]], first)
    assert second.columns == columns
    assert second.columns_of(an_instance("endpoint.waiting", "endpoint.labels")) is not None


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (None, [1, None]),
        (None, [2, {}, 1]),
        ([1, {}], [2, None]),
        ([2, {}], [3, {}, 1]),
    ],
)
def test_what_is_not_held_is_asked_for(before, told):
    held = None if before is None else a_view(before)
    with pytest.raises(CallFailedError) as failed:
        a_view(told, held)
    assert failed.value.error.details == {"missing": "tables"}
    assert failed.value.error.retryable


@pytest.mark.parametrize("told", [None, [1, {}], [1, encoded("endpoint.engine")]])
def test_a_type_that_reads_tables_is_not_run_without_them(told):
    view = take_view([5, 3, 1, ["a", "", "c"], {}], None) if told is None else a_view(told)
    with pytest.raises(CallFailedError) as failed:
        view.columns_of(an_instance("endpoint.engine", "endpoint.labels"))
    assert failed.value.error.details == {"missing": "tables"}


@pytest.mark.parametrize(
    "told",
    [
        3,
        [],
        [1],
        [1, {}, 0, 0],
        ["1", {}],
        [1, {"endpoint.engine": None}],
        [1, {"endpoint.engine": [[]]}],
        [1, {"endpoint.engine": [["x"], codes(0, 0)]}],
        [1, {"endpoint.engine": [["x"], codes(0, 0, 0, 0)]}],
        [1, {"endpoint.engine": [["x"], [0, 0, 0]]}],
        [1, {"endpoint.engine": ["x", codes(0, 0, 0)]}],
    ],
)
def test_tables_of_another_form_fail_their_call_alone(told):
    with pytest.raises(MalformedMessageError, match="side table"):
        a_view(told)


def test_a_table_of_a_later_version_of_the_protocol_is_left_alone():
    view = a_view([1, {"endpoint.colour": [["red"], codes(0, 0, 0)], **encoded("endpoint.engine")}])
    assert view.tables is not None
    assert set(view.tables.by_name) == {"endpoint.engine"}


values = {
    "text": st.text(),
    "texts": st.dictionaries(st.text(), st.text(), max_size=3),
    "counts": st.dictionaries(st.text(), st.integers(0, 2**63 - 1), max_size=3),
}


@given(st.data(), st.sampled_from(sorted(SIDE_TABLES)))
def test_what_is_encoded_is_read(data, name):
    rows = data.draw(st.lists(st.none() | values[SIDE_TABLES[name]], min_size=1, max_size=8))
    wire = encode_table(name, rows)
    view = take_view([1, len(rows), 1, ["a"] * len(rows), {}, None, [1, {name: wire}]], None)
    found, numbers = endpoints(view, name).table(name)
    assert [None if number == UNKNOWN_CODE else found[number] for number in numbers] == rows
    assert len(found) == len(
        {repr(sorted(row.items()) if isinstance(row, dict) else row) for row in rows if row is not None}
    )
