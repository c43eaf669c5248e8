"""What a study of routing quality says: who is held against whom, as samples for figures, a table and a picture.

Our best profile is the one whose clients waited least on average. It is held against the best of the others by each quantity, which
need not be the same one twice. Failed requests have no times, so failing makes the rest look better: a profile of ours that failed
any is in no comparison, and of the others those that failed more than one in a hundred. Nor is whoever is missing a seed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.routing.study import Result

__all__ = [
    "PROBES",
    "QUANTITIES",
    "Standing",
    "details_of",
    "draw",
    "routers_table",
    "samples_of",
    "standing_of",
    "unavailable_of",
]

QUANTITIES: Final[Mapping[str, Callable[[Result], float]]] = {
    "mean_ms": lambda result: result.mean_s * 1e3,
    "p50_ms": lambda result: result.p50_s * 1e3,
    "p90_ms": lambda result: result.p90_s * 1e3,
    "hit_percent": lambda result: result.hit_rate * 100,
    "failed_count": lambda result: float(result.failed),
}
COMPARED: Final = ("mean", "p90")
"""By which the best of the others is sought: lower is better."""

FAILED_SHARE: Final = 0.01
"""Of the others' requests."""

OURS: Final = "routing.ours"
OWN: Final = "routing.own"
"""All of our profiles: what they failed counts, whether they are the best one or not."""
PROBES: Final = (OURS, OWN, *(f"routing.{kind}.{quantity}" for quantity in COMPARED for kind in ("peer", "apart")))
"""Names that figures may use."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Results by router, each one's in the order of seeds, and who is compared. `peers`: the best of them by quantity.

    `excluded` says why a router is in no comparison.
    """

    results: Mapping[str, Sequence[Result]]
    ours: str | None
    peers: Mapping[str, str]
    excluded: Mapping[str, str]


def standing_of(
    results: Sequence[Result],
    missing: Mapping[str, str],
    *,
    ours: Collection[str],
    peers: Collection[str],
    seeds: Sequence[int],
) -> Standing:
    """Sort results by router, and find who is compared among those that did all of the study."""
    names = dict.fromkeys([*ours, *peers, *(result.router for result in results)])
    by_router = {
        name: sorted((result for result in results if result.router == name), key=lambda result: result.seed)
        for name in names
    }
    excluded = {
        name: why
        for name in names
        if (why := missing.get(name) or _why_excluded(by_router[name], seeds, 0.0 if name in ours else FAILED_SHARE))
    }
    best_own = _best([name for name in ours if name not in excluded], by_router, "mean_ms")
    others = [name for name in peers if name not in excluded]
    best = {quantity: _best(others, by_router, f"{quantity}_ms") for quantity in COMPARED}
    return Standing(
        results={name: found for name, found in by_router.items() if found},
        ours=best_own,
        peers={quantity: name for quantity, name in best.items() if name is not None},
        excluded=excluded,
    )


def _why_excluded(results: Sequence[Result], seeds: Sequence[int], failed_share: float) -> str:
    """Empty for who is not."""
    if [result.seed for result in results] != sorted(seeds):
        return "it did not do every seed"
    failed, requests = (sum(counts) for counts in zip(*((r.failed, r.requests) for r in results), strict=True))
    return f"{failed} of {requests} requests failed" if failed > failed_share * requests else ""


def _best(names: Sequence[str], results: Mapping[str, Sequence[Result]], quantity: str) -> str | None:
    """The one with the lowest median over the seeds."""
    return min(names, key=lambda name: median(map(QUANTITIES[quantity], results[name])), default=None)


def samples_of(standing: Standing, ours: Collection[str]) -> Mapping[str, Sequence[float]]:
    """One value a seed for each router's quantities, and again for those that are compared.

    `routing.apart.*` has one value: our largest over the smallest of the others; below 1 the seeds' ranges do not meet.
    """
    results = standing.results
    samples = {
        f"routing {name}:{quantity}": _values(found, quantity)
        for name, found in results.items()
        for quantity in QUANTITIES
    }
    failed = [sum(result.failed for result in results[name]) for name in ours if name in results]
    if failed:
        samples[f"{OWN}:failed_count"] = [float(sum(failed))]
    if standing.ours is None:
        return samples
    own = results[standing.ours]
    samples |= {f"{OURS}:{quantity}": _values(own, quantity) for quantity in QUANTITIES}
    for compared, name in standing.peers.items():
        samples |= {f"routing.peer.{compared}:{quantity}": _values(results[name], quantity) for quantity in QUANTITIES}
        key = f"{compared}_ms"
        samples[f"routing.apart.{compared}:highest_ms"] = [max(_values(own, key))]
        samples[f"routing.apart.{compared}:lowest_ms"] = [min(_values(results[name], key))]
    return samples


def _values(results: Sequence[Result], quantity: str) -> list[float]:
    return [QUANTITIES[quantity](result) for result in results]


def unavailable_of(standing: Standing, *, ours: Collection[str], peers: Collection[str]) -> Mapping[str, str]:
    """Why figures cannot be formed, by probe."""

    def reasons(names: Collection[str]) -> str:
        return "; ".join(f"{name}: {standing.excluded[name]}" for name in names if name in standing.excluded)

    found: dict[str, str] = {}
    if not any(name in standing.results for name in ours):
        found[OWN] = reasons(ours)
    if standing.ours is None:
        found[OURS] = reasons(ours)
    for quantity in COMPARED:
        if quantity not in standing.peers:
            found[f"routing.peer.{quantity}"] = reasons(peers)
        if lacking := [found[name] for name in (OURS, f"routing.peer.{quantity}") if name in found]:
            found[f"routing.apart.{quantity}"] = "; ".join(lacking)
    return found


def details_of(standing: Standing, setting: Mapping[str, object]) -> Mapping[str, object]:
    """For the JSON: the setting, who is compared, who is not and why, and every seed's result."""
    return {
        "setting": setting,
        "ours": standing.ours,
        "peers": dict(standing.peers),
        "excluded": dict(standing.excluded),
        "results": [asdict(result) for found in standing.results.values() for result in found],
    }


# -- for people ----------------------------------------------------------------------------------------


def routers_table(standing: Standing, seeds: Sequence[int]) -> Table:
    """One row a router, best first; those that did nothing last, with the reason."""
    compared = {standing.ours, *standing.peers.values()}
    table = Table(
        box=SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        title="Q1: routing quality, time to first token",
        caption=f"medians (and range) over {len(seeds)} seeds, simulated seconds; * is compared in Q1",
    )
    for header in ("router", "mean s", "p50 s", "p90 s", "hits %", "failed"):
        table.add_column(header, justify="left" if header == "router" else "right")
    for name in _in_order(standing):
        found = standing.results[name]
        cells = [_with_range(found, "mean_ms"), _middle(found, "p50_ms"), _with_range(found, "p90_ms")]
        table.add_row(
            f"{name} *" if name in compared else name,
            *cells,
            f"{median(_values(found, 'hit_percent')):.1f}",
            str(sum(result.failed for result in found)),
        )
    for name, why in standing.excluded.items():
        table.add_row(f"{name} [dim](not {'compared' if name in standing.results else 'measured'}: {why})[/]")
    return table


def _in_order(standing: Standing) -> list[str]:
    return sorted(standing.results, key=lambda name: median(_values(standing.results[name], "mean_ms")))


def _middle(results: Sequence[Result], quantity: str) -> str:
    return f"{median(_values(results, quantity)) / 1e3:.2f}"


def _with_range(results: Sequence[Result], quantity: str) -> str:
    values = _values(results, quantity)
    return f"{_middle(results, quantity)} ({min(values) / 1e3:.2f}–{max(values) / 1e3:.2f})"


def draw(standing: Standing, path: Path) -> list[Path]:
    """Mean and p90 of each router with the seeds' range, best on top, and the hit rate beside; nothing without results."""
    names = _in_order(standing)
    if not names:
        return []
    picture = Picture(figsize=(12, 1.8 + 0.45 * len(names)))
    waits, hits = picture.subplots(1, 2, sharey=True, width_ratios=(3, 1))
    for offset, quantity, label in ((-0.2, "mean_ms", "mean"), (0.2, "p90_ms", "p90")):
        _bars(waits, standing, names, quantity, offset=offset, scale=1e-3, label=label)
    _bars(hits, standing, names, "hit_percent", offset=0.0, scale=1.0, label="hits")
    waits.set_yticks(range(len(names)), names)
    waits.invert_yaxis()
    waits.set(xlabel="time to first token, simulated s", title="Routing quality: median and range over the seeds")
    waits.legend()
    hits.set(xlabel="prompt tokens found in caches, %", xlim=(0, 100))
    absent = [f"{name}: {why}" for name, why in standing.excluded.items() if name not in standing.results]
    if absent:
        picture.text(0.01, -0.02, "not measured: " + "\n".join(absent), fontsize=7, va="top")
    picture.savefig(path, dpi=120, bbox_inches="tight")
    return [path]


def _bars(
    axes: Axes, standing: Standing, names: Sequence[str], quantity: str, *, offset: float, scale: float, label: str
) -> None:
    values = [[value * scale for value in _values(standing.results[name], quantity)] for name in names]
    middles = [median(found) for found in values]
    errors = (
        [middle - min(found) for middle, found in zip(middles, values, strict=True)],
        [max(found) - middle for middle, found in zip(middles, values, strict=True)],
    )
    height = 0.4 if offset else 0.6
    places = [number + offset for number in range(len(names))]
    axes.barh(places, middles, height=height, xerr=errors, capsize=2, label=label)
    axes.grid(axis="x", alpha=0.3)
