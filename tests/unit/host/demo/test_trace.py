"""A trace keeps its order, its arrivals' shape and its sharing when it is scaled."""

import json
from pathlib import Path

import pytest
from hotbay.demo.trace import (
    BLOCK_BYTES,
    MAX_ANSWER_TOKENS,
    MAX_PROMPT_BYTES,
    TraceRequest,
    parse_trace,
    plan_replay,
    prompt,
)
from hotbay.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

RECORDED = Path(__file__).parents[4] / "benchmarks" / "data" / "mooncake-conversation.jsonl"


def request(*hash_ids: int, at_ms: int = 0, tokens: int | None = None, output: int = 100) -> TraceRequest:
    return TraceRequest(at_ms, len(hash_ids) * 512 if tokens is None else tokens, output, hash_ids)


def line(**changes: object) -> str:
    whole = {"timestamp": 1, "input_length": 600, "output_length": 9, "hash_ids": [3, 4]}
    return json.dumps(whole | changes)


def test_lines_become_requests_in_the_order_of_time():
    trace = parse_trace("\n".join([line(timestamp=9), "", line(timestamp=2)]), file="t")

    assert trace == (TraceRequest(2, 600, 9, (3, 4)), TraceRequest(9, 600, 9, (3, 4)))


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[]",
        "1",
        line(timestamp=-1),
        line(timestamp=None),
        line(input_length=1.5),
        line(output_length="9"),
        line(input_length=True),
        line(hash_ids=3),
        line(hash_ids=[1, "2"]),
    ],
)
def test_a_line_that_is_no_request_is_named(bad: str):
    with pytest.raises(InputError) as caught:
        parse_trace(f"{line()}\n{bad}\n", file="trace.jsonl")

    assert str(caught.value.problems[0].place) == "trace.jsonl:2"


def test_at_most_a_few_bad_lines_are_told():
    with pytest.raises(InputError) as caught:
        parse_trace("x\n" * 1000, file="t")

    assert len(caught.value.problems) == 5


def test_an_empty_trace_is_refused():
    with pytest.raises(InputError, match="holds no request"):
        parse_trace("\n\n", file="t")


@given(
    st.lists(st.integers(0, 50), max_size=30), st.lists(st.integers(51, 99), max_size=10), st.lists(st.integers(51, 99))
)
def test_equal_hashes_give_equal_beginnings(shared: list[int], one: list[int], other: list[int]):
    length = min(len(shared) * BLOCK_BYTES, MAX_PROMPT_BYTES)

    assert prompt(request(*shared, *one), 1)[:length] == prompt(request(*shared, *other), 1)[:length]


def test_other_hashes_give_other_text():
    assert len({prompt(request(n), 0) for n in range(500)}) == 500


def test_lengths_are_scaled_and_cut():
    assert len(prompt(request(1, 2, 3, tokens=1100), 0)) == round(1100 * BLOCK_BYTES / 512)
    assert len(prompt(request(*range(500)), 0)) == MAX_PROMPT_BYTES
    assert prompt(TraceRequest(0, 0, 1, ()), 0)


def test_time_is_scaled_as_a_whole():
    trace = [request(n, at_ms=at) for n, at in enumerate([5000, 5000, 8000, 25_000])]

    arrivals = plan_replay(trace, seed=0, duration_s=2.0, rate=2.0)

    assert [arrival.at_s for arrival in arrivals] == [0.0, 0.0, 0.3, 2.0]


def test_as_many_requests_are_taken_as_the_rate_allows():
    trace = [request(n, at_ms=n * 1000) for n in range(100)]

    assert len(plan_replay(trace, seed=0, duration_s=10.0, rate=3.0)) == 30
    assert plan_replay(trace, seed=0, duration_s=1000.0, rate=10.0)[-1].at_s == 10.0
    assert len(plan_replay(trace[:1], seed=0, duration_s=10.0, rate=3.0)) == 1


def test_the_recorded_trace_fits():
    trace = parse_trace(RECORDED.read_text(), file=str(RECORDED))
    arrivals = plan_replay(trace, seed=0, duration_s=60.0, rate=1000 / 60)

    assert len(trace) == 12_031
    assert len(arrivals) == 1000
    assert all(0 <= a.at_s <= 60.0 for a in arrivals)
    assert all(
        0 < len(a.prompt.encode()) <= MAX_PROMPT_BYTES and 1 <= a.answer_tokens <= MAX_ANSWER_TOKENS for a in arrivals
    )
    assert len({a.prompt[:BLOCK_BYTES] for a in arrivals}) < len(arrivals) / 2, "beginnings are shared"
