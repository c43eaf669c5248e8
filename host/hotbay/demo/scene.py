"""What is known at a moment of a run: written by the show, read by the view.

One loop's thread writes and reads. Times are seconds from the beginning of the load.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from hotbay.demo.gauges import Counters, HostStatus
from hotbay.demo.record import Record
from hotbay.demo.timeline import Timeline

__all__ = ["Event", "Scene"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth a line."""

    at_s: float
    text: str


@dataclass(slots=True)
class Scene:
    """`status` and `counters` are the latest pages; `heard` is called with every event as it comes."""

    duration_s: float
    clock: Callable[[], float]
    status: HostStatus
    counters: Counters
    heard: Callable[[Event], None]
    record: Record = field(default_factory=Record)
    timeline: Timeline = field(default_factory=Timeline)
    events: list[Event] = field(default_factory=list)

    def say(self, text: str) -> None:
        event = Event(self.clock(), text)
        self.events.append(event)
        self.heard(event)

    def take(self, status: HostStatus) -> HostStatus:
        """Make this page the latest one, and say what it changes."""
        self.status = status
        for text in self.timeline.note(self.clock(), status):
            self.say(text)
        return status
