"""When an endpoint is due, and how much rarer all are while the loop has no time: what polling decides about time.

Starts are spread by a hash of the endpoint's id, so that a thousand endpoints that come at once are asked one after the
other, in the same order in every run; from then on each keeps to a grid of its own. Under pressure all intervals grow by
one factor, in one step to what the measured load asks for, and shrink again in small ones after some quiet windows: a
window that was busy by chance costs freshness for a while, a saturated loop costs every request. Pure.
"""

from dataclasses import dataclass
from typing import Final

import xxhash

__all__ = ["CALM", "WINDOW_S", "Load", "Pressure", "measured", "most_factor", "next_due", "start_delay_s", "step"]

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

_STOPPED_FROM: Final = 3.0

_HASHES: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Load:
    """One window: the share of it that the thread ran, and the share of wakings that were late. Both 0 to 1."""

    busy: float
    late: float


@dataclass(frozen=True, slots=True)
class Pressure:
    """`factor` that intervals are multiplied by, from 1, and how many calm windows there were in a row."""

    factor: float = 1.0
    calm: int = 0


CALM: Final = Pressure()


def step(pressure: Pressure, load: Load, most: float) -> Pressure:
    """Pressure after a window with this load; the factor stays within 1 and `most`.

    Between the two sets of limits nothing changes: one step back, which makes a calm loop at most a quarter busier, never
    reaches the limit that would take it forth again.
    """
    if load.busy >= TOO_BUSY or load.late >= TOO_LATE:
        wider = max(_WIDER_AT_LEAST, load.busy / AIM)
        return Pressure(min(most, pressure.factor * wider))
    if load.busy > CALM_BUSY or load.late > CALM_LATE:
        return Pressure(pressure.factor)
    if pressure.factor <= 1.0 or pressure.calm + 1 < CALM_WINDOWS:
        return Pressure(pressure.factor, pressure.calm + 1 if pressure.factor > 1.0 else 0)
    return Pressure(max(1.0, pressure.factor * _NARROWER))


def measured(took_s: float, ran_s: float, wakings: int, late: int) -> Load | None:
    """The load of a window that took so long, of which the thread ran `ran_s`, with `late` of its wakings late.

    None when the process was stopped meanwhile, or the machine slept: nobody was late for want of time.
    """
    busy = min(1.0, ran_s / took_s)
    if took_s >= _STOPPED_FROM * WINDOW_S and busy < CALM_BUSY:
        return None
    return Load(busy, late / max(1, wakings))


def most_factor(interval_s: float) -> float:
    """How much an interval may grow: up to LONGEST_S, not at all if it is longer."""
    return max(1.0, LONGEST_S / interval_s)


def start_delay_s(endpoint_id: str, interval_s: float, count: int) -> float:
    """How long after its appearance an endpoint is asked for the first time, when there are `count` of them.

    The same for the same arguments. Shorter than an interval, a second, or what all first pages need, if that is longer.
    """
    window_s = max(min(interval_s, _LATEST_START_S), count * START_GAP_S)
    return xxhash.xxh3_64_intdigest(endpoint_id.encode()) / _HASHES * window_s


def next_due(due: float, interval_s: float, now: float) -> float:
    """The first point of the grid `due`, `due + interval_s`, … that comes after `due` and is not past."""
    missed = max(0, int((now - due) / interval_s))
    return due + (missed + 1) * interval_s
