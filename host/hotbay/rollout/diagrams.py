"""Draws the state machines of rollouts and instances from their tables: `python -m hotbay.rollout.diagrams`.

The text that it prints is `docs/state-machines.md`; a test holds the two equal.
"""

import sys
from collections.abc import Iterable, Mapping

from hotbay.rollout import lifecycle
from hotbay.rollout.machine import TABLE
from hotbay.rollout.state import Phase
from hotbay.rollout.turn import RESTING

__all__ = ["document"]

_HEAD = """# State machines

Drawn from the tables in the code by `python -m hotbay.rollout.diagrams > docs/state-machines.md`; a test holds them equal.
An event that is not drawn at a state changes nothing there, or cannot happen in it, which is an error of the host's own.

"""
_ROLLOUT = """## Rollout of one plugin

`Resting` stands for the phases in which nothing of the plugin is under way: {resting}. Which of them it is says what the
routine waits for. From there, and whenever a step ends, the next thing begins: what was live comes back, or the best
version that is complete is staged. Downloads run beside all of this.

"""
_INSTANCE = """## Instance: one process

Forward only: a restart is another instance with another generation.

"""
_NAMES = {
    "Known": "the world changed",
    "Tick": "time",
    "Fetched": "download complete",
    "Staged": "environment verified",
    "Broke": "download or check failed",
    "Ready": "READY",
    "Ended": "process gone",
    "AskedToGo": "plugin asks to go",
    "Judged": "verdict",
    "Published": "plan published",
    "Refused": "plan refused",
    "Forgive": "failures forgotten",
    "GoTo": "operator goes to a version",
}


def document() -> str:
    """The whole page, as Markdown with Mermaid diagrams."""
    resting = ", ".join(sorted(f"`{phase}`" for phase in RESTING))
    return "".join(
        (
            _HEAD,
            _ROLLOUT.format(resting=resting),
            _diagram("Resting", _rollout_edges()),
            "\n",
            _INSTANCE,
            _diagram("NEW", _instance_edges()),
        )
    )


def _node(phase: Phase) -> str:
    return "Resting" if phase in RESTING else phase.name


def _rollout_edges() -> Mapping[tuple[str, str], list[str]]:
    edges: dict[tuple[str, str], list[str]] = {}
    for (phase, event), rule in TABLE.items():
        name = _NAMES.get(event.__name__, event.__name__.lower())
        for target in rule.to:
            if _node(target) != _node(phase):
                edges.setdefault((_node(phase), _node(target)), []).append(name)
    return edges


def _instance_edges() -> Mapping[tuple[str, str], list[str]]:
    edges: dict[tuple[str, str], list[str]] = {}
    for (state, event), target in lifecycle.TABLE.items():
        if state is not target:
            edges.setdefault((state.name, target.name), []).append(str(event))
    return edges


def _diagram(first: str, edges: Mapping[tuple[str, str], Iterable[str]]) -> str:
    lines = [
        f"    {source} --> {target}: {', '.join(sorted(set(names)))}"
        for (source, target), names in sorted(edges.items())
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {first}", *lines, "```", ""])


if __name__ == "__main__":
    sys.stdout.write(document())
