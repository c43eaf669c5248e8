"""The picture fits the console, and the newest event is in it."""

import io
from collections.abc import Callable

import pytest
from hotbay.demo.command import is_log_wanted
from hotbay.demo.gauges import Counters, HostStatus
from hotbay.demo.scene import Event, Scene
from hotbay.demo.view import picture
from rich.console import Console

MakeStatus = Callable[..., HostStatus]


@pytest.fixture
def scene(make_status: MakeStatus, make_counters: Callable[..., Counters]) -> Scene:
    plugins = {name: {"rev": 60397696, "version": "0.1.0"} for name in ("standard", "least-loaded", "prefix-cache")}
    scene = Scene(15.0, lambda: 12.0, make_status(**plugins), make_counters(), lambda event: None)
    for n in range(40):
        scene.events.append(
            Event(n / 4, f"standard: event {n} of a length at which an 80 columns wide terminal folds it")
        )
    scene.events.append(Event(11.3, "SIGKILL to standard, pid 1"))
    return scene


def drawn(scene: Scene, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)
    lines = console.render_lines(picture(scene, console), pad=False)
    return ["".join(segment.text for segment in line) for line in lines]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (80, 12), (40, 10), (80, 5)])
def test_picture_fits_and_ends_with_the_newest_event(scene: Scene, width: int, height: int):
    lines = drawn(scene, width, height)
    assert len(lines) <= height
    assert lines[-1].strip() == "11.3 s  SIGKILL to standard, pid 1"


def test_names_are_whole_at_80_columns(scene: Scene):
    text = "\n".join(drawn(scene, 80, 24))
    for name in ("standard", "least-loaded", "prefix-cache", "60397696", "event 39"):
        assert name in text
    assert "…" not in text


def test_low_console_gives_up_tables_for_events(scene: Scene):
    assert "model server" not in "\n".join(drawn(scene, 80, 10))
    assert sum("event" in line for line in drawn(scene, 80, 10)) >= 1


def test_log_is_not_shown_to_who_interrupted():
    assert not is_log_wanted(None, interrupted=True, sabotage=False)
    assert is_log_wanted(None, interrupted=False, sabotage=False)
