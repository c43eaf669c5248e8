"""The scheduler of a simulated server: what runs in which step, and when a step ends. Pure: `now` is passed in.

A discrete-event core. `add` and `abort` change who is there, `advance(now)` ends the steps that are over by then and
begins the next ones, `next_at` says when to call it again. Whoever drives it late misses nothing: steps begin where the
one before ended, not when somebody looked.

A step is put together as vLLM's scheduler does it. First those that run, in their order: one token each, or the next
piece of their prompt, as far as the budget of tokens goes; when blocks run out, the one that was admitted last is
preempted: it gives its blocks back and waits again, before all others. Then, unless somebody was preempted, those that wait,
first come first served, while there are sequences, tokens and blocks left. A prefix whose blocks are cached is not
computed again, except that at least the last token is. Only who needs one LoRA adapter more than a batch holds is passed.

Invariants: a request that was added is waiting, running or gone, and is gone only by its end or by `abort`; a block is used
exactly by the sequences that hold it; each request has at most one token more a step.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Final

from hotbay.sim.adapters import AdapterInfo, AdapterMemory
from hotbay.sim.blocks import BlockPool
from hotbay.sim.sequences import EngineLimits, Progress, Sequence, Stage, Work
from hotbay.sim.statistics import Statistics
from hotbay.sim.timing import Timing

__all__ = ["NEVER", "Engine"]

NEVER: Final = float("inf")


@dataclass(slots=True)
class _Step:
    ends_at: float
    planned: list[tuple[Sequence, int]]


@dataclass(slots=True)
class _Plan:
    """A step while it is put together."""

    budget: int
    planned: list[tuple[Sequence, int]] = field(default_factory=list)
    prefill_tokens: int = 0
    prompts_begun: int = 0
    loads: int = 0
    has_preempted: bool = False

    def put(self, sequence: Sequence, tokens: int) -> None:
        self.budget -= tokens
        self.planned.append((sequence, tokens))
        if sequence.is_prefill:
            self.prefill_tokens += tokens


class Engine:
    """See the module. `random` draws what `timing` lets vary."""

    def __init__(self, limits: EngineLimits, timing: Timing, random: Random) -> None:
        self.limits = limits
        self.timing = timing
        self.pool = BlockPool(limits.blocks_count, is_caching=limits.is_caching)
        self.statistics = Statistics(limits.max_model_len)
        self.adapters = AdapterMemory(limits.max_cpu_loras)
        self.adapter_info = AdapterInfo()
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.deferred_count = 0
        self._random = random
        self._step: _Step | None = None
        self._uses_adapters = False
        self._look_at = NEVER

    @property
    def next_at(self) -> float:
        """When `advance` has something to do next; infinity while nothing is there."""
        if self._step is not None:
            return self._step.ends_at
        return min((self._look_at, *(s.held_until for s in self.running)))

    @property
    def kv_usage(self) -> float:
        """Part of the blocks that is in use, 0 to 1."""
        return self.pool.used_count / self.pool.count

    def add(self, work: Work, now: float) -> Sequence:
        """Take a request into the queue; `advance` has to follow, but need not at once. `now` never goes back.

        Raises:
            ValueError: it can never be answered here.
        """
        total = work.prompt_tokens + work.output_tokens
        most = min(self.limits.max_model_len, self.limits.blocks_count * self.limits.block_size)
        if work.prompt_tokens < 1 or work.output_tokens < 1 or total > most:
            raise ValueError(f"a request has 1 to {most} tokens, of both kinds at least one; found {work}")
        sequence = Sequence(work, now)
        self._uses_adapters |= bool(work.adapter)
        self.waiting.append(sequence)
        self._look_at = min(self._look_at, now)
        return sequence

    def abort(self, sequence: Sequence, now: float) -> None:
        """Forget a request whose client is gone; `advance` has to follow. One that has ended is left alone."""
        if sequence.stage is Stage.GONE:
            return
        if sequence.stage is Stage.WAITING:
            self.waiting.remove(sequence)
        else:
            self.running.remove(sequence)
        self._leave(sequence, "abort")
        if self.waiting:
            # Its place may be what the first in the queue waits for.
            self._look_at = min(self._look_at, now)

    def advance(self, now: float) -> list[Progress]:
        """End what is over by `now` and begin what comes next. Returns what each request got, in the order of the steps."""
        got: dict[Sequence, int] = {}
        while True:
            if self._step is None:
                at = min(now, self.next_at)
            elif self._step.ends_at <= now:
                at = self._step.ends_at
                self._end_step(self._step, got)
            else:
                break
            self._step = self._begin_step(at)
            if self._step is None and self.next_at > now:
                break
        return [Progress(sequence, tokens, sequence.finish_reason) for sequence, tokens in got.items()]

    def _begin_step(self, at: float) -> _Step | None:
        """Put a step together; None when nobody can have one now."""
        plan = _Plan(self.limits.max_num_batched_tokens)
        self._look_at = NEVER
        self._plan_running(plan, at)
        if not plan.has_preempted:
            self._plan_waiting(plan, at)
        if self._uses_adapters:
            self._note_adapters(at)
        if not plan.planned:
            return None
        seconds = self.timing.step_s(
            prefill_tokens=plan.prefill_tokens,
            prompts_begun=plan.prompts_begun,
            sequences=len(plan.planned),
            random=self._random,
        )
        return _Step(at + seconds + plan.loads * self.timing.adapter_load_s, plan.planned)

    def _plan_running(self, plan: _Plan, at: float) -> None:
        running, size = self.running, self.limits.block_size
        index = 0
        while index < len(running) and plan.budget > 0:
            sequence = running[index]
            index += 1
            if sequence.held_until > at:
                continue
            tokens = min(sequence.known - sequence.computed, plan.budget)
            needed = -(-(sequence.computed + tokens) // size) - len(sequence.blocks)
            if needed <= self.pool.free_count or self._make_room(sequence, needed, plan):
                self._extend(sequence, tokens, needed, plan)

    def _make_room(self, sequence: Sequence, needed: int, plan: _Plan) -> bool:
        """Preempt from the end until there are so many blocks for this one; False when it was preempted itself."""
        while needed > self.pool.free_count:
            victim = self.running.pop()
            plan.has_preempted = True
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, victim: Sequence) -> None:
        self._give_back(victim)
        victim.stage = Stage.WAITING
        victim.computed = 0
        victim.preemptions += 1
        self.statistics.preemptions += 1
        self.waiting.appendleft(victim)

    def _plan_waiting(self, plan: _Plan, at: float) -> None:
        passed: list[Sequence] = []
        active = {s.work.adapter for s in self.running if s.work.adapter} if self._uses_adapters else set()
        while self.waiting and plan.budget > 0 and len(self.running) < self.limits.max_num_seqs:
            sequence = self.waiting[0]
            if sequence.arrived_at > at:
                self._look_at = sequence.arrived_at
                break
            adapter = sequence.work.adapter
            if adapter and adapter not in active and len(active) >= self.limits.max_loras:
                passed.append(self.waiting.popleft())
                continue
            if not self._admit(sequence, plan, at):
                break
            if adapter:
                active.add(adapter)
                plan.loads += self.adapters.use(adapter)
        self.deferred_count = len(passed)
        self.waiting.extendleft(reversed(passed))

    def _admit(self, sequence: Sequence, plan: _Plan, at: float) -> bool:
        """Begin with the first in the queue; False when there are not enough blocks for it."""
        size = self.limits.block_size
        # At least the last token has to be computed: without it there is nothing to answer from.
        hits = self.pool.find(sequence.work.hashes[: (sequence.known - 1) // size])
        hit_tokens = len(hits) * size
        held_until = at + (self.timing.hold_s(self._random) if sequence.admitted_at is None else 0.0)
        tokens = 0 if held_until > at else min(sequence.known - hit_tokens, plan.budget)
        needed = -(-(hit_tokens + tokens) // size) - len(hits)
        if needed > self.pool.free_count - self.pool.idle_count(hits):
            return False
        self.waiting.popleft()
        self.running.append(sequence)
        self.pool.take(hits)
        sequence.stage, sequence.held_until = Stage.RUNNING, held_until
        sequence.blocks, sequence.named_count, sequence.computed = hits, len(hits), hit_tokens
        if sequence.admitted_at is None:
            sequence.admitted_at = at
            sequence.cached_tokens = hit_tokens
            self.statistics.prefix_queries += sequence.known
            self.statistics.prefix_hits += hit_tokens
        if tokens:
            plan.prompts_begun += 1
            self._extend(sequence, tokens, needed, plan)
        return True

    def _extend(self, sequence: Sequence, tokens: int, needed: int, plan: _Plan) -> None:
        """Plan tokens of one that runs and needs so many blocks more.

        Its full blocks are found by their hashes from now on, also by those that are admitted to this very step.
        """
        if needed > 0:
            sequence.blocks += self.pool.new(needed)
        full_count = min((sequence.computed + tokens) // self.limits.block_size, len(sequence.work.hashes))
        while sequence.named_count < full_count:
            index = sequence.named_count
            self.pool.name(sequence.blocks[index], sequence.work.hashes[index])
            sequence.named_count += 1
        plan.put(sequence, tokens)

    def _end_step(self, step: _Step, got: dict[Sequence, int]) -> None:
        statistics = self.statistics
        prompt_tokens = answers = 0
        for sequence, tokens in step.planned:
            if sequence.stage is not Stage.RUNNING:
                continue
            sequence.computed += tokens
            if sequence.computed < sequence.known:
                continue
            if not sequence.generated:
                prompt_tokens += sequence.work.prompt_tokens
            self._answer(sequence, step.ends_at)
            got[sequence] = got.get(sequence, 0) + 1
            answers += 1
        statistics.generation_tokens += answers
        statistics.step_tokens.observe(prompt_tokens + answers)

    def _answer(self, sequence: Sequence, at: float) -> None:
        """One token more of the answer."""
        sequence.generated += 1
        if sequence.generated == 1:
            sequence.first_at = at
            self.statistics.count_first_token(sequence)
        else:
            self.statistics.inter_token_s.observe(at - sequence.last_at)
        sequence.last_at = at
        reason = sequence.finish_reason
        if reason:
            self.running.remove(sequence)
            self.statistics.count_answered(sequence)
            self._leave(sequence, reason)

    def _leave(self, sequence: Sequence, reason: str) -> None:
        self._give_back(sequence)
        sequence.stage = Stage.GONE
        self.statistics.finished[reason] += 1

    def _give_back(self, sequence: Sequence) -> None:
        self.pool.give_back(sequence.blocks)
        sequence.blocks = []
        sequence.named_count = 0

    def _note_adapters(self, at: float) -> None:
        self.adapter_info.look((s.work.adapter for s in self.running), (s.work.adapter for s in self.waiting), at)
