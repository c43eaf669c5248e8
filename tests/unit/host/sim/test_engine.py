"""What runs in which step of a simulated engine, and what each request gets of it."""

import pytest
from hotbay.sim.engine import NEVER
from hotbay.sim.sequences import Stage
from hotbay.sim.timing import Timing
from hypothesis import given
from hypothesis import strategies as st

# The engine of these tests: 4 sequences, 64 tokens a step, blocks of 4 tokens, 32 of them; a step takes
# 1 s + 0.01 s a prompt token + 0.1 s a sequence.


def test_request_alone_takes_a_step_for_its_prompt_and_one_for_each_further_token(make_engine, work, run):
    engine = make_engine()
    engine.add(work(10, 3), 0.0)
    (times,) = run(engine).values()
    assert times == pytest.approx([1.2, 2.3, 3.4])
    assert engine.statistics.first_token_s.sum == pytest.approx(1.2)
    assert engine.statistics.inter_token_s.sum == pytest.approx(2.2)


def test_step_takes_longer_with_more_requests(make_engine, work, run):
    engine = make_engine()
    for _ in range(3):
        engine.add(work(1, 2), 0.0)
    assert [times[-1] for times in run(engine).values()] == pytest.approx([1.33 + 1.3] * 3)


def test_request_that_comes_during_a_step_waits_for_the_next_one(make_engine, work):
    engine = make_engine()
    engine.add(work(10, 2), 0.0)
    engine.advance(0.0)
    late = engine.add(work(10, 1), 0.5)
    engine.advance(0.5)
    assert late.stage is Stage.WAITING
    engine.advance(engine.next_at)
    assert late.stage is Stage.RUNNING
    assert late.admitted_at == pytest.approx(1.2)


def test_batch_has_at_most_max_num_seqs_in_the_order_of_arrival(make_engine, work):
    engine = make_engine()
    added = [engine.add(work(1, 2), 0.0) for _ in range(6)]
    engine.advance(0.0)
    assert engine.running == added[:4]
    assert list(engine.waiting) == added[4:]


def test_prompt_longer_than_the_budget_is_computed_in_pieces(make_engine, work, run):
    engine = make_engine()
    engine.add(work(100, 1), 0.0)
    (times,) = run(engine).values()
    assert times == pytest.approx([1.1 + 0.64 + 1.1 + 0.36])


def test_who_is_answered_goes_before_a_new_prompt(make_engine, work):
    """A long prompt takes what the others leave of the budget: they go on getting a token a step."""
    engine = make_engine()
    short = engine.add(work(4, 9), 0.0)
    engine.advance(0.0)
    long = engine.add(work(100, 1), 0.1)
    engine.advance(engine.next_at)
    assert long.computed == 0
    engine.advance(engine.next_at)
    assert (long.computed, short.generated) == (63, 2)


def test_cached_prefix_is_not_computed_again(make_engine, work, run):
    engine = make_engine()
    engine.add(work(16, 1, text=(1, 2, 3, 4)), 0.0)
    run(engine)
    again = engine.add(work(18, 1, text=(1, 2, 3, 4)), 10.0)
    engine.advance(10.0)
    assert again.cached_tokens == 16
    assert engine.next_at == pytest.approx(10 + 1.1 + 0.02)
    assert (engine.statistics.prefix_queries, engine.statistics.prefix_hits) == (34, 16)


def test_last_block_of_a_prompt_that_is_cached_whole_is_computed(make_engine, work, run):
    engine = make_engine()
    for at in (0.0, 10.0):
        last = engine.add(work(16, 1, text=(1, 2, 3, 4)), at)
        engine.advance(at)
        run(engine)
    assert last.cached_tokens == 12


def test_requests_of_the_same_step_share_their_prefix(make_engine, work):
    engine = make_engine()
    first, second = (engine.add(work(16, 1, text=(1, 2, 3, 4)), 0.0) for _ in range(2))
    engine.advance(0.0)
    assert (first.cached_tokens, second.cached_tokens) == (0, 12)
    assert engine.pool.used_count == 5


def test_answer_is_cached_behind_its_prompt(make_engine, work, run):
    engine = make_engine()
    engine.add(work(8, 9, text=(1, 2, 3, 4)), 0.0)
    run(engine)
    follow_up = engine.add(work(20, 1, text=(1, 2, 3, 4, 5)), 100.0)
    engine.advance(100.0)
    assert follow_up.cached_tokens == 16


def test_nothing_is_cached_where_caching_is_off(make_engine, work, run):
    engine = make_engine(is_caching=False)
    for at in (0.0, 10.0):
        last = engine.add(work(16, 1, text=(1, 2, 3, 4)), at)
        engine.advance(at)
        run(engine)
    assert last.cached_tokens == engine.statistics.prefix_hits == 0


def test_blocks_that_end_preempt_who_was_admitted_last(make_engine, work, run):
    engine = make_engine(blocks_count=6, max_model_len=24)
    first, second = engine.add(work(8, 12), 0.0), engine.add(work(8, 12), 0.0)
    engine.advance(0.0)
    while not engine.statistics.preemptions:
        engine.advance(engine.next_at)
    assert (first.stage, second.stage) == (Stage.RUNNING, Stage.WAITING)
    assert second.preemptions == 1
    assert engine.waiting[0] is second
    run(engine)
    assert (first.generated, second.generated) == (12, 12)
    assert engine.statistics.finished["length"] == 2
    assert engine.pool.used_count == 0


def test_preempted_request_finds_its_own_blocks_again(make_engine, work, run):
    engine = make_engine(blocks_count=6, max_model_len=24)
    engine.add(work(8, 12, text=range(5)), 0.0)
    second = engine.add(work(8, 8, text=range(10, 14)), 0.0)
    engine.advance(0.0)
    while second.stage is not Stage.WAITING:
        engine.advance(engine.next_at)
    generated = second.generated
    run(engine)
    assert generated
    assert second.generated == 8
    assert engine.statistics.prefix_queries == 16, "a request asks once, however often it is admitted"


def test_adapter_too_many_waits_and_the_next_request_goes_ahead(make_engine, work):
    engine = make_engine(max_loras=1)
    first = engine.add(work(4, 2, adapter="a"), 0.0)
    passed = [engine.add(work(4, 2, adapter=name), 0.0) for name in "bcb"]
    plain = engine.add(work(4, 2), 0.0)
    engine.advance(0.0)
    assert engine.running == [first, plain]
    assert list(engine.waiting) == passed
    assert engine.deferred_count == 3


def test_adapters_up_to_max_loras_run_together(make_engine, work):
    engine = make_engine(max_loras=2)
    added = [engine.add(work(4, 2, adapter=name), 0.0) for name in "abab"]
    engine.advance(0.0)
    assert engine.running == added


def test_adapter_that_is_not_in_memory_takes_time_to_load(make_engine, work):
    engine = make_engine(timing=Timing(base_s=1.0, adapter_load_s=5.0), max_loras=1, max_cpu_loras=1)
    for began, name, took in ((0.0, "a", 6.0), (10.0, "a", 1.0), (20.0, "b", 6.0), (30.0, "a", 6.0)):
        engine.add(work(4, 1, adapter=name), began)
        engine.advance(began)
        assert engine.next_at == pytest.approx(began + took)
        engine.advance(engine.next_at)


def test_request_that_is_given_up_leaves_its_place_and_its_blocks(make_engine, work, run):
    engine = make_engine()
    running, waiting = engine.add(work(8, 9), 0.0), engine.add(work(8, 9), 0.0)
    engine.advance(0.0)
    late = engine.add(work(8, 1), 0.5)
    for sequence in (running, waiting, late, late):
        engine.abort(sequence, 0.5)
    assert engine.pool.used_count == 0
    assert engine.statistics.finished["abort"] == 3
    assert run(engine) == {}


def test_request_that_waits_takes_the_place_of_one_that_is_given_up_before_its_prompt_was_computed(make_engine, work):
    engine = make_engine(timing=Timing(base_s=1.0, first_token_s=50.0), max_num_seqs=1)
    held, waiting = engine.add(work(8, 1), 0.0), engine.add(work(8, 1), 0.0)
    engine.advance(0.0)
    assert engine.next_at == 49.0
    engine.abort(held, 2.0)
    assert engine.next_at == 2.0
    engine.advance(2.0)
    assert waiting.admitted_at == 2.0


def test_first_token_takes_what_it_is_set_to_whatever_the_prompt(make_engine, work, run):
    engine = make_engine(timing=Timing(base_s=1.0, prefill_token_s=9.0, first_token_s=4.0))
    engine.add(work(60, 2), 0.0)
    engine.add(work(3, 2), 0.0)
    for times in run(engine).values():
        assert times == pytest.approx([4.0, 5.0])


def test_everything_happens_at_once_without_times(make_engine, work):
    engine = make_engine(timing=Timing())
    added = [engine.add(work(100, 20), 3.0) for _ in range(9)]
    got = {sequence: (tokens, reason) for sequence, tokens, reason in engine.advance(3.0)}
    assert got == dict.fromkeys(added, (20, "length"))
    assert engine.next_at == NEVER


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (1, 0), (100, 29)], ids=["no prompt", "no answer", "too long"])
def test_request_that_can_never_be_answered_is_refused(make_engine, work, prompt, output):
    with pytest.raises(ValueError, match="1 to 128 tokens"):
        make_engine().add(work(prompt, output), 0.0)


def test_request_as_long_as_the_model_goes_is_answered(make_engine, work, run):
    engine = make_engine()
    engine.add(work(100, 28), 0.0)
    (times,) = run(engine).values()
    assert len(times) == 28


# -- whatever comes --------------------------------------------------------------------------------

REQUESTS = st.lists(
    st.tuples(
        st.floats(0, 20),  # arrival
        st.integers(1, 40),  # prompt
        st.integers(1, 20),  # answer
        st.integers(0, 3),  # which text
        st.sampled_from(["", "", "a", "b"]),
        st.one_of(st.none(), st.floats(0, 20)),  # when its client leaves
    ),
    min_size=1,
    max_size=25,
)
TIMINGS = st.sampled_from(
    [
        Timing(),
        Timing(base_s=0.5, prefill_token_s=0.01, running_s=0.1),
        Timing(base_s=0.1, first_token_s=2.0, first_token_std_s=0.5),
        Timing(base_s=0.2, running_s=0.1, step_std_s=0.05, prefill_overhead_s=0.3, adapter_load_s=1.0),
    ]
)


def text_of(number: int, adapter: str) -> range:
    """Prompts of the same text share all blocks that both have; adapters share nothing."""
    begin = 1000 * number + 100_000 * "ab".find(adapter or "x")
    return range(begin, begin + 15)


def events_of(requests):
    """Arrivals and leavings in the order of their times."""
    arrivals = [(at, 0, number, request) for number, request in enumerate(requests) for at in request[:1]]
    leavings = [
        (request[0] + request[5], 1, number, request)
        for number, request in enumerate(requests)
        if request[5] is not None
    ]
    return sorted(arrivals + leavings, key=lambda event: event[:3])


@given(REQUESTS, TIMINGS, st.integers(10, 32))
def test_nothing_is_lost_and_nothing_counted_twice(make_engine, work, requests, timing, blocks_count):
    engine = make_engine(timing=timing, blocks_count=blocks_count, max_model_len=min(128, blocks_count * 4))
    requests = [r for r in requests if r[1] + r[2] <= engine.limits.max_model_len]
    added, tokens, finished = {}, {}, set()

    def advance(until: float) -> None:
        while engine.next_at <= until:
            step(engine.next_at)

    def step(at: float) -> None:
        for sequence, count, reason in engine.advance(at):
            assert sequence not in finished
            assert count == 1 or timing == Timing()
            tokens[sequence] = tokens.get(sequence, 0) + count
            if reason:
                finished.add(sequence)
        held = {block for sequence in engine.running for block in sequence.blocks}
        assert engine.pool.used_count == len(held)
        assert len(engine.running) <= engine.limits.max_num_seqs
        assert len({s.work.adapter for s in engine.running} - {""}) <= engine.limits.max_loras
        assert engine.statistics.prefix_hits <= engine.statistics.prefix_queries

    for at, is_leaving, number, request in events_of(requests):
        advance(at)
        if is_leaving:
            engine.abort(added[number], at)
        else:
            _, prompt, output, text, adapter, _ = request
            added[number] = engine.add(work(prompt, output, text_of(text, adapter), adapter), at)
        advance(at)
    advance(1e9)
    assert engine.next_at == NEVER
    assert not engine.waiting
    assert not engine.running
    assert engine.pool.used_count == 0
    assert sum(engine.statistics.finished.values()) == len(added)
    for sequence in added.values():
        assert sequence.stage is Stage.GONE
        assert tokens.get(sequence, 0) == sequence.generated
        assert (sequence in finished) == (sequence.generated == sequence.work.output_tokens)


@given(REQUESTS, st.integers(10, 32))
def test_first_come_first_served(make_engine, work, requests, blocks_count):
    engine = make_engine(blocks_count=blocks_count, max_model_len=blocks_count * 4)
    requests = sorted((r for r in requests if r[1] + r[2] <= blocks_count * 4), key=lambda request: request[0])
    added = []
    for at, prompt, output, text, _, _ in requests:
        while engine.next_at <= at:
            engine.advance(engine.next_at)
        added.append(engine.add(work(prompt, output, text_of(text, "")), at))
        engine.advance(at)
    engine.advance(1e9)
    admitted = [sequence.admitted_at for sequence in added]
    assert admitted == sorted(admitted)


@given(REQUESTS, TIMINGS, st.integers(10, 32))
def test_who_drives_late_misses_nothing(make_engine, work, requests, timing, blocks_count):
    """Steps begin where the one before ended, so one look in the end gives what looking at each step gave."""
    requests = sorted((r for r in requests if r[1] + r[2] <= blocks_count * 4), key=lambda request: request[0])
    seen = []
    for is_late in (False, True):
        engine = make_engine(timing=timing, blocks_count=blocks_count, max_model_len=blocks_count * 4)
        added = []
        for at, prompt, output, text, adapter, _ in requests:
            while not is_late and engine.next_at < at:
                engine.advance(engine.next_at)
            added.append(engine.add(work(prompt, output, text_of(text, adapter), adapter), at))
        while engine.next_at < NEVER:
            engine.advance(1e9 if is_late else engine.next_at)
        seen.append([(s.admitted_at, s.first_at, s.last_at, s.cached_tokens, s.preemptions) for s in added])
    assert seen[0] == seen[1]
