"""What a run comes to: figures, the JSON object, the verdict with its reasons. Pure.

A step of a decision is degraded when its binding's failure policy answered in place of the plugin; a decision has as many
steps as its profile has bindings. The degraded steps that the kill explains lie between two readings of the host's own
counter, the last one before the signal and the first one after the page on which the replacement is READY; all others
are outside. Both readings take a moment, so the window is a little wider than the outage: what is degraded in that
margin counts inside, and the times of all four events are in the report.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hotbay.demo.gauges import Counters, HostStatus, PluginStatus
from hotbay.demo.record import Sample, quantile
from hotbay.demo.timeline import Life

__all__ = [
    "ACT_TIMEOUT_S",
    "GenerationRow",
    "KillWindow",
    "Run",
    "Swap",
    "failures",
    "generation_rows",
    "summary",
    "verdict",
]

REQUESTS_MIN: Final = 20
"""Fewer requests than this show nothing, whatever became of them."""

ACT_TIMEOUT_S: Final = 15.0
"""For a new process to answer: some hundred milliseconds on a free machine, seconds on a busy one."""

LIFE_MIN_S: Final = 2.0
"""A generation that answered for at least this long under load has had requests."""


@dataclass(frozen=True, slots=True)
class Swap:
    """A new version was published; `live_s` is when a page first showed it live, None when none did in time."""

    plugin: str
    published_s: float
    live_s: float | None


@dataclass(frozen=True, slots=True)
class KillWindow:
    """A plugin was killed. `ready_s` is None when no replacement was seen in time.

    `degraded_before` is the counter's reading that was begun at `sampled_s` and ended at `killed_s`, `degraded_after` the one
    that ended at `resampled_s`.
    """

    plugin: str
    pid: int
    sampled_s: float
    killed_s: float
    ready_s: float | None
    resampled_s: float
    degraded_before: int
    degraded_after: int

    @property
    def degraded(self) -> int:
        return self.degraded_after - self.degraded_before


@dataclass(frozen=True, slots=True)
class Run:
    """All that was observed; `before` are the counters before the first request, `after` those after the last one."""

    seed: int
    duration_s: float
    samples: Sequence[Sample]
    lives: Sequence[Life]
    status: HostStatus
    before: Counters
    after: Counters
    swap: Swap | None
    kill: KillWindow | None

    @property
    def failed(self) -> int:
        return sum(1 for sample in self.samples if sample.error)

    @property
    def degraded(self) -> int:
        return self.after.degraded_total - self.before.degraded_total

    @property
    def degraded_outside(self) -> int:
        return self.degraded - (self.kill.degraded if self.kill is not None else 0)

    @property
    def degraded_by(self) -> dict[str, int]:
        """Degraded steps by `binding: reason`."""
        before = self.before.degraded
        counts = {f"{key[0]}: {key[1]}": count - before.get(key, 0) for key, count in self.after.degraded.items()}
        return {name: count for name, count in sorted(counts.items()) if count}

    @property
    def swapped_s(self) -> float | None:
        """When the published version was live, also later than was waited for; None when it never was."""
        swap = self.swap
        if swap is None or swap.live_s is not None:
            return swap.live_s if swap is not None else None
        old = {life.digest for life in self.lives if life.plugin == swap.plugin and life.from_s <= swap.published_s}
        new = (life for life in self.lives if life.plugin == swap.plugin and life.digest not in old)
        return min((life.from_s for life in new), default=None)

    @property
    def replaced_s(self) -> float | None:
        """When a process was there in place of the killed one, also later than was waited for; None when none was."""
        kill = self.kill
        if kill is None or kill.ready_s is not None:
            return kill.ready_s if kill is not None else None
        lives = (life for life in self.lives if life.plugin == kill.plugin and life.from_s > kill.killed_s)
        return min((life.from_s for life in lives), default=None)

    @property
    def swaps(self) -> int:
        return sum(plugin.swaps for plugin in self.status.plugins)

    @property
    def crashes_survived(self) -> int:
        """Crashes, as the host counts them, of plugins that answer now."""
        return sum(plugin.restarts for plugin in self.status.plugins if plugin.pid is not None)

    def ttft_ms(self, q: float) -> float | None:
        value = quantile((s.ttft_s for s in self.samples if s.ttft_s is not None and not s.error), q)
        return None if value is None else round(value * 1000, 1)


def verdict(run: Run) -> tuple[str, ...]:
    """Why the run is red; empty when it is green."""
    reasons = []
    if run.failed:
        reasons.append(f"{run.failed} of {len(run.samples)} requests failed")
    if len(run.samples) < REQUESTS_MIN:
        reasons.append(f"only {len(run.samples)} requests were made, at least {REQUESTS_MIN} show something")
    if run.degraded_outside:
        reasons.append(f"{run.degraded_outside} degraded steps have no kill to explain them")
    if run.swaps != 1:
        reasons.append(f"{run.swaps} swaps, expected 1")
    if run.swap is not None and run.swapped_s is None:
        reasons.append(f"the new version of {run.swap.plugin} was never live")
    if run.crashes_survived != 1:
        reasons.append(f"{run.crashes_survived} crashes survived, expected 1")
    dead = [plugin.plugin for plugin in run.status.plugins if plugin.pid is None]
    if dead:
        reasons.append(f"no process answers for {', '.join(dead)}")
    reasons += [
        f"generation {row.life.generation} of {row.life.plugin} answered for {row.lasted_s:.1f} s without a request"
        for row in generation_rows(run)
        if row.requests == 0 and row.lasted_s >= LIFE_MIN_S
    ]
    return tuple(reasons)


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """One generation, with the requests that began while it was seen to live."""

    life: Life
    lasted_s: float
    requests: int
    failed: int


def generation_rows(run: Run) -> tuple[GenerationRow, ...]:
    """All generations by plugin and number."""
    end_s = max((sample.ended_s for sample in run.samples), default=0.0)
    return tuple(
        _generation_row(life, run.samples, end_s)
        for life in sorted(run.lives, key=lambda life: (life.plugin, life.generation))
    )


def _generation_row(life: Life, samples: Sequence[Sample], end_s: float) -> GenerationRow:
    to_s = end_s if life.to_s is None else life.to_s
    begun = [sample for sample in samples if life.from_s <= sample.began_s < to_s]
    return GenerationRow(life, max(0.0, to_s - life.from_s), len(begun), sum(1 for s in begun if s.error))


def failures(samples: Sequence[Sample]) -> dict[str, int]:
    """How often each error came, the most frequent first."""
    counts = Counter(sample.error for sample in samples if sample.error)
    return dict(counts.most_common())


def summary(run: Run) -> dict[str, object]:
    """The JSON object. Times are seconds from the beginning of the load."""
    reasons = verdict(run)
    decision_us = run.after.decision_us(0.5)
    return {
        "requests": len(run.samples),
        "failed": run.failed,
        "degraded": run.degraded,
        "degraded_outside_kill_window": run.degraded_outside,
        "swaps": run.swaps,
        "crashes_survived": run.crashes_survived,
        "isolation": run.status.isolation,
        "upstream": "llama.cpp",
        "ttft_ms_p50": run.ttft_ms(0.5),
        "ttft_ms_p99": run.ttft_ms(0.99),
        "decision_us_p50": None if decision_us is None else round(decision_us),
        "plugins": [_plugin(run, plugin) for plugin in run.status.plugins],
        "green": not reasons,
        "reasons": list(reasons),
        "seed": run.seed,
        "duration_s": run.duration_s,
        "swap": None if run.swap is None else _swap(run.swap),
        "kill_window": None if run.kill is None else _kill(run.kill),
        "degraded_by": run.degraded_by,
        "failures": failures(run.samples),
    }


def _plugin(run: Run, plugin: PluginStatus) -> dict[str, object]:
    return {
        "plugin": plugin.plugin,
        "version": plugin.version,
        "rev": plugin.rev,
        "digest": plugin.digest,
        "restarts": plugin.restarts,
        "swaps": plugin.swaps,
        "generations": [
            {
                "generation": row.life.generation,
                "version": row.life.version,
                "rev": row.life.rev,
                "pid": row.life.pid,
                "from_s": _s(row.life.from_s),
                "to_s": _s(row.life.to_s),
                "requests": row.requests,
                "failed": row.failed,
            }
            for row in generation_rows(run)
            if row.life.plugin == plugin.plugin
        ],
    }


def _swap(swap: Swap) -> dict[str, object]:
    return {"plugin": swap.plugin, "published_s": _s(swap.published_s), "live_s": _s(swap.live_s)}


def _kill(kill: KillWindow) -> dict[str, object]:
    return {
        "plugin": kill.plugin,
        "pid": kill.pid,
        "sampled_s": _s(kill.sampled_s),
        "killed_s": _s(kill.killed_s),
        "ready_s": _s(kill.ready_s),
        "resampled_s": _s(kill.resampled_s),
        "degraded": kill.degraded,
    }


def _s(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
