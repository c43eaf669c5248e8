"""What the demo shows: a live view on a terminal, lines elsewhere, and the final table. Renders, decides nothing.

The live view is never higher than the console: tables give way to events, and old events to new ones.
"""

from collections.abc import Sequence

import anyio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hotbay.demo.report import ACT_TIMEOUT_S, GenerationRow, Run, failures, generation_rows, verdict
from hotbay.demo.scene import Event, Scene
from hotbay.observe.tables import UNKNOWN, Grid, cell

__all__ = ["Lines", "LiveView", "final", "picture"]

_REFRESH_S = 0.25
_LINE_S = 5.0
_WINDOW_S = 5.0
_EVENTS_SHOWN = 12
# A kill and what comes of it, of which each may fold once.
_EVENT_LINES_MIN = 4
_ERRORS_SHOWN = 5
_NEXT = "next: the same by hand, with a plugin of your own: the tour of docs/operator-guide.md, a quarter of an hour"


class LiveView:
    """Redraws a screenful four times a second on the console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def heard(self, event: Event) -> None:
        """Events are part of the picture."""

    async def watch(self, scene: Scene) -> None:
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                live.update(picture(scene, self._console), refresh=True)
                await anyio.sleep(_REFRESH_S)


class Lines:
    """Writes events as they come and figures every few seconds: for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def heard(self, event: Event) -> None:
        self._console.print(f"{event.at_s:6.1f} s  {event.text}", markup=False, highlight=False, soft_wrap=True)

    async def watch(self, scene: Scene) -> None:
        while True:
            await anyio.sleep(_LINE_S)
            self.heard(Event(scene.clock(), _figures(scene)))


def _figures(scene: Scene) -> str:
    record, now_s = scene.record, scene.clock()
    p50, p99 = (record.ttft_ms(q, now_s=now_s, window_s=_WINDOW_S) for q in (0.5, 0.99))
    return (
        f"{record.count} requests, {len(record.failures)} failed, {record.rate(now_s, _WINDOW_S):.1f}/s, "
        f"TTFT p50 {_ms(p50)} p99 {_ms(p99)}, {record.in_flight} in flight, "
        f"{scene.counters.degraded_total} degraded"
    )


def _ms(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f} ms"


def picture(scene: Scene, console: Console) -> RenderableType:
    """All of it that fits into the console; the newest event always does."""
    head = Text(f"hotbay demo  {scene.clock():5.1f} / {scene.duration_s:g} s", style="bold")
    top = Group(head, Text(_figures(scene)))
    plugins, endpoints = _table(_plugins(scene), console), _endpoints(scene)
    for tables in ((endpoints, plugins), (plugins,), ()):
        above = Group(top, *tables)
        room = console.height - _height(above, console)
        if room >= _EVENT_LINES_MIN:
            break
    return Group(above, *_newest(scene.events, room, console))


def _height(part: RenderableType, console: Console) -> int:
    return len(console.render_lines(part, pad=False))


def _newest(events: Sequence[Event], room: int, console: Console) -> list[Text]:
    """The newest events that are together at most `room` lines high, oldest first; at least one."""
    shown: list[Text] = []
    for event in reversed(events[-_EVENTS_SHOWN:]):
        text = Text(f"{event.at_s:6.1f} s  {event.text}", overflow="fold")
        room -= _height(text, console)
        if shown and room < 0:
            break
        shown.insert(0, text)
    return shown


def _endpoints(scene: Scene) -> Table:
    table = _empty_table(("model server", "in flight", "running", "waiting", "load"))
    for endpoint in scene.status.endpoints:
        table.add_row(
            Text(cell(endpoint.id.rpartition("/")[2])),
            str(endpoint.in_flight),
            *(UNKNOWN if value is None else f"{value:g}" for value in (endpoint.running, endpoint.waiting)),
            "█" * endpoint.in_flight,
        )
    return table


def _plugins(scene: Scene) -> Grid:
    names = ("plugin", "version", "rev", "gen", "pid", "phase", "swaps", "restarts")
    rows = tuple(
        (
            cell(plugin.plugin),
            cell(plugin.version),
            str(plugin.rev),
            str(plugin.generation),
            "down" if plugin.pid is None else str(plugin.pid),
            plugin.phase,
            str(plugin.swaps),
            str(plugin.restarts),
        )
        for plugin in scene.status.plugins
    )
    return Grid(names, (0, 3, 1, 2, 0, 4, 0, 0), rows)


def _empty_table(names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _table(grid: Grid, console: Console) -> Table:
    fitted = grid.fitted(console.width)
    table = _empty_table(fitted.names)
    for row in fitted.rows:
        table.add_row(*map(Text, row), style="red" if "down" in row else None)
    return table


def _show(console: Console, grid: Grid, *, header: bool = True) -> None:
    """As a table that fits on a terminal, elsewhere as lines of whatever width they have."""
    if not console.is_terminal:
        for line in grid.lines()[0 if header else 1 :]:
            console.print(Text(line), soft_wrap=True)
        return
    table = _table(grid, console)
    table.show_header = header
    console.print(table)


def final(run: Run, console: Console) -> None:
    """Print the outcome: figures, generations, errors, verdict."""
    _show(console, _outcome(run), header=False)
    _show(console, _generations(run))
    for error, count in list(failures(run.samples).items())[:_ERRORS_SHOWN]:
        console.print(f"failed {count} times: {error}", markup=False, soft_wrap=True)
    reasons = verdict(run)
    if not reasons:
        console.print(Text("GREEN: no request failed, through a swap and a crash", style="bold green"))
        console.print(Text(_NEXT), soft_wrap=True)
    for reason in reasons:
        console.print(Text(f"RED: {reason}", style="bold red"))


def _outcome(run: Run) -> Grid:
    decision_us = run.after.decision_us(0.5)
    length_s = max((sample.ended_s for sample in run.samples), default=0.0)
    rate = len(run.samples) / length_s if length_s else 0.0
    rows = [
        ("requests", f"{len(run.samples)} in {length_s:.1f} s, {rate:.1f}/s, {run.failed} failed"),
        ("time to first token", f"p50 {_ms(run.ttft_ms(0.5))}, p99 {_ms(run.ttft_ms(0.99))}"),
        ("decision", UNKNOWN if decision_us is None else f"p50 {decision_us:.0f} µs, in three plugin processes"),
        ("degraded steps", f"{run.degraded}, of which {run.degraded_outside} outside the kill's window"),
        *(("", f"{count} × {cell(name)}") for name, count in run.degraded_by.items()),
    ]
    if run.swap is not None:
        live = "never live" if run.swapped_s is None else f"live {run.swapped_s - run.swap.published_s:.2f} s later"
        if run.swap.live_s is None and run.swapped_s is not None:
            live = _late("live", run.swapped_s)
        rows.append(("swap", f"{run.swap.plugin} published at {run.swap.published_s:.1f} s, {live}"))
    if run.kill is not None:
        ready = (
            "no replacement" if run.replaced_s is None else f"replaced {run.replaced_s - run.kill.killed_s:.2f} s later"
        )
        if run.kill.ready_s is None and run.replaced_s is not None:
            ready = _late("replaced", run.replaced_s)
        rows.append(("crash", f"{run.kill.plugin} killed at {run.kill.killed_s:.1f} s, {ready}"))
    rows.append(("isolation", run.status.isolation))
    return Grid(("what", "outcome"), (0, 0), tuple(rows))


def _late(what: str, at_s: float) -> str:
    return f"{what} at {at_s:.1f} s, later than the {ACT_TIMEOUT_S:g} s waited for"


def _generations(run: Run) -> Grid:
    names = ("plugin", "gen", "version", "rev", "pid", "lived, s", "requests", "failed")
    return Grid(names, (0, 1, 4, 0, 3, 2, 0, 0), tuple(_generation(row) for row in generation_rows(run)))


def _generation(row: GenerationRow) -> tuple[str, ...]:
    life = row.life
    end = "" if life.to_s is None else f"{life.to_s:.1f}"
    return (
        cell(life.plugin),
        str(life.generation),
        cell(life.version),
        str(life.rev),
        str(life.pid),
        f"{life.from_s:.1f} – {end}",
        str(row.requests),
        str(row.failed),
    )
