"""When an endpoint is due, and how much rarer all are while the loop has no time: what polling decides about time.

Starts are spread by a hash of the endpoint's id, so that a thousand endpoints that come at once are asked one after the
other, in the same order in every run; from then on each keeps to a grid of its own. Under pressure all intervals grow by
one factor, in one step to what the measured load asks for, and shrink again in small ones after some quiet windows: a
window that was busy by chance costs freshness for a while, a saturated loop costs every request. An endpoint whose pages
are dear to read has a factor of its own besides, so that it is asked less often before the others are, and so has one
that fails again and again: nobody knows what it would say, and asking it costs connections. Pure.
"""

from dataclasses import dataclass
from typing import Final

import xxhash

__all__ = [
    "CALM",
    "FAILING_S",
    "LATE_S",
    "MOST_SHARE",
    "PATIENCE",
    "POLL_S",
    "WINDOW_S",
    "WORTH",
    "Load",
    "Pressure",
    "failing_factor",
    "measured",
    "most_factor",
    "next_due",
    "own_factor",
    "start_delay_s",
    "start_window_s",
    "step",
]

START_GAP_S: Final = 0.001
"""Room of one first page with its connection: a thousand endpoints start within a second."""
_LATEST_START_S: Final = 1.0

WINDOW_S: Final = 1.0
"""What a load is measured over: twenty pages of an endpoint at the shortest interval."""
LONGEST_S: Final = 2.0
"""No interval grows beyond it: by then schedulers take figures for unknown (the reference's staleness threshold)."""

TOO_BUSY: Final = 0.85
"""Share of a window that the loop's thread may run: at more, whoever waits for its turn waits several turns."""
AIM: Final = 0.65
CALM_BUSY: Final = 0.5
TOO_LATE: Final = 0.1
"""Share of wakings that may be late by LATE_S or more."""
CALM_LATE: Final = 0.01
LATE_S: Final = 0.02
"""What the loop may lag (M14)."""
CALM_WINDOWS: Final = 5
_WIDER_AT_LEAST: Final = 1.25
_NARROWER: Final = 0.8

MOST_SHARE: Final = 0.05
"""Share of the loop's thread that the pages of one endpoint may take: of each page at the shortest interval 2.5 ms, which is
ten times what the page of a busy vLLM takes."""
_CHEAPER: Final = 0.5

PATIENCE: Final = 3
"""Failures in a row at the plain interval: a page that is lost costs nothing, and by then an endpoint counts as unhealthy where
`freshness.failures` is not raised."""
FAILING_S: Final = 1.0
"""What the interval of an endpoint that fails grows to: one that comes back is known soon, and a thousand that are gone cost
a thousand connections a second."""
_JITTER: Final = 0.25

_STOPPED_FROM: Final = 3.0

_MOST_DOUBLINGS: Final = 32
_HASHES: Final = 1 << 64

POLL_S: Final = 0.0003
"""What one poll takes of the thread beside the reading of its page (G18: 0.43 ms in all, 0.12 of them reading)."""
WORTH: Final = 0.05
"""Share of the loop that polling has to take, at the intervals asked for, before wider ones give anything back."""


@dataclass(frozen=True, slots=True)
class Load:
    """One window: the share of it that the thread ran, that of wakings that were late, and what polling took. All 0 to 1."""

    busy: float
    late: float
    polling: float = 1.0


@dataclass(frozen=True, slots=True)
class Pressure:
    """`factor` that intervals are multiplied by, from 1, and how many calm windows there were in a row."""

    factor: float = 1.0
    calm: int = 0


CALM: Final = Pressure()


def step(pressure: Pressure, load: Load, most: float) -> Pressure:
    """Pressure after a window with this load; the factor stays within 1 and `most`.

    Between the two sets of limits nothing changes: one step back, which makes a calm loop at most a quarter busier, never
    reaches the limit that would take it forth again. A loop that others keep busy gets nothing from rarer polls: then
    figures stay as fresh as they were asked for.
    """
    if load.polling * pressure.factor < WORTH:
        return Pressure(max(1.0, pressure.factor * _NARROWER))
    if load.busy >= TOO_BUSY or load.late >= TOO_LATE:
        wider = max(_WIDER_AT_LEAST, load.busy / AIM)
        return Pressure(min(most, pressure.factor * wider))
    if load.busy > CALM_BUSY or load.late > CALM_LATE:
        return Pressure(pressure.factor)
    if pressure.factor <= 1.0 or pressure.calm + 1 < CALM_WINDOWS:
        return Pressure(pressure.factor, pressure.calm + 1 if pressure.factor > 1.0 else 0)
    return Pressure(max(1.0, pressure.factor * _NARROWER))


def measured(took_s: float, ran_s: float, wakings: int, late: int, polled_s: float) -> Load | None:
    """The load of a window that took so long, of which the thread ran `ran_s`, with `late` of its wakings late.

    `polled_s`: how much of it polls took.

    None when the process was stopped meanwhile, or the machine slept: nobody was late for want of time.
    """
    busy = min(1.0, ran_s / took_s)
    if took_s >= _STOPPED_FROM * WINDOW_S and busy < CALM_BUSY:
        return None
    return Load(busy, late / max(1, wakings), min(1.0, polled_s / took_s))


def most_factor(interval_s: float) -> float:
    """How much an interval may grow: up to LONGEST_S, not at all if it is longer."""
    return max(1.0, LONGEST_S / interval_s)


def own_factor(factor: float, cost_s: float, interval_s: float, most: float) -> float:
    """What the interval of one endpoint is multiplied by, from 1 to `most`, when reading its page takes `cost_s`.

    It grows from `factor` to what keeps the endpoint within MOST_SHARE, and shrinks when half of it would do: costs that vary
    by less change nothing.
    """
    wanted = cost_s / (MOST_SHARE * interval_s)
    return min(most, max(1.0, wanted)) if wanted > factor or wanted <= factor * _CHEAPER else factor


def failing_factor(endpoint_id: str, failures: int, interval_s: float) -> float:
    """What the interval of an endpoint is multiplied by after so many failed polls in a row, from 1.

    It doubles with each from the PATIENCE-th on until the interval is FAILING_S, less up to a quarter, by which endpoints that
    failed together are asked apart. The same for the same arguments.
    """
    if failures < PATIENCE:
        return 1.0
    spread = xxhash.xxh3_64_intdigest(f"{endpoint_id}/{failures}".encode()) / _HASHES
    grown = min(FAILING_S, interval_s * 2.0 ** min(failures - PATIENCE + 1, _MOST_DOUBLINGS))
    return max(1.0, grown / interval_s * (1.0 - _JITTER * spread))


def start_delay_s(endpoint_id: str, interval_s: float, count: int) -> float:
    """How long after its appearance an endpoint is asked for the first time, when there are `count` of them.

    The same for the same arguments. Shorter than an interval, a second, or what all first pages need, if that is longer.
    """
    return xxhash.xxh3_64_intdigest(endpoint_id.encode()) / _HASHES * start_window_s(interval_s, count)


def start_window_s(interval_s: float, count: int) -> float:
    """The time within which `count` endpoints that come together are asked for the first time."""
    return max(min(interval_s, _LATEST_START_S), count * START_GAP_S)


def next_due(due: float, interval_s: float, now: float) -> float:
    """The first point of the grid `due`, `due + interval_s`, … that comes after `due` and is not past."""
    missed = max(0, int((now - due) / interval_s))
    return due + (missed + 1) * interval_s
