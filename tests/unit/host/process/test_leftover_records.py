"""Records of running processes: read back as written, and nothing else is taken for one."""

import json
from dataclasses import asdict

import pytest
from hotbay.process.leftovers import ProcessRecord, read_record
from hypothesis import given
from hypothesis import strategies as st

POSITIVE = st.integers(1, 2**63)
RECORDS = st.builds(
    ProcessRecord,
    machine=st.text(),
    label=st.text(),
    pid=POSITIVE,
    start_ticks=POSITIVE,
    channel=st.text(),
    pipes=st.lists(POSITIVE, max_size=4).map(tuple),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@given(RECORDS)
def test_record_comes_back(record):
    assert read_record(json.dumps(asdict(record))) == record


@given(RECORDS, st.integers(0, 200))
def test_record_that_was_cut_off_is_none(record, kept):
    text = json.dumps(asdict(record))
    assert read_record(text[: min(kept, len(text) - 1)]) is None


@given(JSON | st.sampled_from(list(ProcessRecord.__dataclass_fields__)).flatmap(lambda n: st.tuples(st.just(n), JSON)))
def test_other_json_is_never_taken_or_is_whole(value):
    fields = {"machine": "m", "label": "l", "pid": 1, "start_ticks": 1, "channel": "c", "pipes": [1]}
    text = json.dumps({**fields, value[0]: value[1]} if isinstance(value, tuple) else value)
    found = read_record(text)
    assert found is None or read_record(json.dumps(asdict(found))) == found


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"pid": 1}', "\x00", "1e999"])
def test_what_is_no_record_is_none(text):
    assert read_record(text) is None
