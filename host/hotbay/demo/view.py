"""What the demo shows: a live view on a terminal, lines elsewhere, and the final table. Renders, decides nothing."""

import anyio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hotbay.demo.report import Run, failures, generation_rows, verdict
from hotbay.demo.scene import Event, Scene

__all__ = ["Lines", "LiveView", "final"]

_REFRESH_S = 0.25
_LINE_S = 5.0
_WINDOW_S = 5.0
_EVENTS_SHOWN = 8
_ERRORS_SHOWN = 5


class LiveView:
    """Redraws a screenful four times a second on the console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def heard(self, event: Event) -> None:
        """Events are part of the picture."""

    async def watch(self, scene: Scene) -> None:
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                live.update(_picture(scene), refresh=True)
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
    return "–" if value is None else f"{value:.0f} ms"


def _picture(scene: Scene) -> RenderableType:
    head = Text(f"hotbay demo  {scene.clock():5.1f} / {scene.duration_s:g} s", style="bold")
    return Group(head, Text(_figures(scene)), _endpoints(scene), _plugins(scene), _events(scene))


def _endpoints(scene: Scene) -> Table:
    table = Table("model server", "in flight", "running", "waiting", "load", title_justify="left")
    for endpoint in scene.status.endpoints:
        table.add_row(
            endpoint.id.rpartition("/")[2],
            str(endpoint.in_flight),
            *("–" if value is None else f"{value:g}" for value in (endpoint.running, endpoint.waiting)),
            "█" * endpoint.in_flight,
        )
    return table


def _plugins(scene: Scene) -> Table:
    table = Table("plugin", "version", "rev", "generation", "pid", "phase", "swaps", "restarts")
    for plugin in scene.status.plugins:
        table.add_row(
            plugin.plugin,
            plugin.version,
            str(plugin.rev),
            str(plugin.generation),
            "down" if plugin.pid is None else str(plugin.pid),
            plugin.phase,
            str(plugin.swaps),
            str(plugin.restarts),
            style="red" if plugin.pid is None else None,
        )
    return table


def _events(scene: Scene) -> RenderableType:
    return Group(*(Text(f"{event.at_s:6.1f} s  {event.text}") for event in scene.events[-_EVENTS_SHOWN:]))


def final(run: Run, console: Console) -> None:
    """Print the outcome: figures, generations, errors, verdict."""
    console.print(_outcome(run), _generations(run))
    for error, count in list(failures(run.samples).items())[:_ERRORS_SHOWN]:
        console.print(f"failed {count} times: {error}", markup=False, soft_wrap=True)
    reasons = verdict(run)
    if not reasons:
        console.print(Text("GREEN: no request failed, through a swap and a crash", style="bold green"))
    for reason in reasons:
        console.print(Text(f"RED: {reason}", style="bold red"))


def _outcome(run: Run) -> Table:
    table = Table("what", "outcome", show_header=False)
    decision_us = run.after.decision_us(0.5)
    length_s = max((sample.ended_s for sample in run.samples), default=0.0)
    rate = len(run.samples) / length_s if length_s else 0.0
    table.add_row("requests", f"{len(run.samples)} in {length_s:.1f} s, {rate:.1f}/s, {run.failed} failed")
    table.add_row("time to first token", f"p50 {_ms(run.ttft_ms(0.5))}, p99 {_ms(run.ttft_ms(0.99))}")
    table.add_row("decision", "–" if decision_us is None else f"p50 {decision_us:.0f} µs, in three plugin processes")
    table.add_row("degraded steps", f"{run.degraded}, of which {run.degraded_outside} outside the kill's window")
    for name, count in run.degraded_by.items():
        table.add_row("", f"{count} × {name}")
    if run.swap is not None:
        live = "never live" if run.swap.live_s is None else f"live {run.swap.live_s - run.swap.published_s:.2f} s later"
        table.add_row("swap", f"{run.swap.plugin} published at {run.swap.published_s:.1f} s, {live}")
    if run.kill is not None:
        ready = (
            "no replacement"
            if run.kill.ready_s is None
            else f"replaced {run.kill.ready_s - run.kill.killed_s:.2f} s later"
        )
        table.add_row("crash", f"{run.kill.plugin} killed at {run.kill.killed_s:.1f} s, {ready}")
    table.add_row("isolation", run.status.isolation)
    return table


def _generations(run: Run) -> Table:
    table = Table("plugin", "generation", "version", "rev", "pid", "lived, s", "requests", "failed")
    for row in generation_rows(run):
        life = row.life
        end = "" if life.to_s is None else f"{life.to_s:.1f}"
        table.add_row(
            life.plugin,
            str(life.generation),
            life.version,
            str(life.rev),
            str(life.pid),
            f"{life.from_s:.1f} – {end}",
            str(row.requests),
            str(row.failed),
        )
    return table
