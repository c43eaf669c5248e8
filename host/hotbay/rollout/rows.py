"""The status of one routine, as values. Pure."""

from dataclasses import dataclass

from hotbay.packages.package_blobs import Progress
from hotbay.rollout.selection import Status
from hotbay.rollout.state import Phase
from hotbay.rollout.verdicts import Verdict
from hotbay.rpc.leases import Origin

__all__ = ["LIVE", "ErrorShown", "PinShown", "Row", "VerdictShown", "phase_text"]

LIVE = "live"
"""The phase IDLE of a plugin that answers, in the words of the status page."""


@dataclass(frozen=True, slots=True)
class ErrorShown:
    """The last thing that went wrong. `at_s` is monotonic."""

    code: str
    message: str
    hint: str
    digest: str
    at_s: float


@dataclass(frozen=True, slots=True)
class VerdictShown:
    """The newest verdict of the last trial that had one: of which step, and on which build."""

    verdict: Verdict
    phase: Phase
    of: Origin


@dataclass(frozen=True, slots=True)
class PinShown:
    """The pin that holds. `rev` is None while nothing of its digest is known; `by` is None for that of the configuration."""

    rev: int | None
    digest: str | None
    by: str | None


@dataclass(slots=True)
class Row:
    """Status of one routine. `live` is what answers, or answered last: `live_pid` is None then.

    `pin` is what the operator or the configuration chose. `below` are revisions, the highest first, that came while a higher
    one was live.

    `asked` are all capabilities that the first build asks for which awaits a grant.

    `strikes_until_s`: until when each failure counts towards the budget. It, `at_s` and the like are monotonic, but
    `live_since_s` is seconds since the epoch.
    """

    plugin: str
    phase: Phase = Phase.WAITING_FOR_DOWNLOAD
    selection: Status = Status.UNKNOWN
    live: Origin | None = None
    live_generation: int | None = None
    live_pid: int | None = None
    live_since_s: float | None = None
    live_state: str = ""
    candidate: Origin | None = None
    candidate_pid: int | None = None
    previous: Origin | None = None
    target: str | None = None
    pin: PinShown | None = None
    below: tuple[int, ...] = ()
    awaiting_grant: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    progress: Progress | None = None
    verdict: VerdictShown | None = None
    paused: bool = False
    restarts: int = 0
    swaps: int = 0
    rollbacks: int = 0
    cold: str = ""
    retry_at_s: float | None = None
    strikes_until_s: tuple[float, ...] = ()
    last_error: ErrorShown | None = None


def phase_text(row: Row) -> str:
    """The phase as the status page shows it."""
    return LIVE if row.phase is Phase.IDLE and row.live_pid is not None else str(row.phase)
