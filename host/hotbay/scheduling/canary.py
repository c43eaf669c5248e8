"""Which requests a canary takes, and what became of the requests of both arms.

A canary with the salt of the one before it goes on with its statistics; another begins anew.
"""

from collections.abc import Sequence

from hotbay.scheduling.arms import Arms, CanaryPlan, in_canary
from hotbay.scheduling.batch import LastGood
from hotbay.scheduling.decision import Arm, Picked
from hotbay.scheduling.plan import Plan
from hotbay.scheduling.statistics import ArmCounters

__all__ = ["Canary"]


class Canary:
    """The canary of now, if there is one. `last_good` is that of its arm."""

    __slots__ = ("_arms", "_canary", "last_good")

    def __init__(self) -> None:
        self.last_good: LastGood = {}
        self._canary: CanaryPlan | None = None
        self._arms: dict[Arm, ArmCounters] = {}

    @property
    def is_on(self) -> bool:
        """Whether requests are shared."""
        return self._canary is not None

    def published(self, canary: CanaryPlan | None) -> None:
        """Take the canary from now on."""
        if canary is not None and Arm(canary.salt, canary=True) not in self._arms:
            self._arms = {Arm(canary.salt, canary=side): ArmCounters() for side in (False, True)}
            self.last_good = {}
        self._canary = canary

    def arm_of(self, request_id: str) -> Arm:
        """The arm of a request; only while the canary is on."""
        canary = self._canary
        assert canary is not None, "it is on"
        return Arm(canary.salt, canary=in_canary(request_id, canary.salt, canary.share))

    def plan_of(self, arm: Arm | None, live: Plan | None) -> Plan | None:
        """The plan of an arm, as long as it is on trial; else the live one."""
        canary = self._canary
        return canary.plan if canary is not None and arm == Arm(canary.salt, canary=True) else live

    def read(self, salt: str) -> Arms | None:
        """Requests by arm of the canary with this salt, if it is the latest one."""
        live, canary = self._arms.get(Arm(salt, canary=False)), self._arms.get(Arm(salt, canary=True))
        return None if live is None or canary is None else Arms(live.read(), canary.read())

    def decided(self, arm: Arm, duration_s: float, *, refused: bool, degraded: Sequence[object]) -> None:
        """A decision of the arm was made."""
        if (counters := self._arms.get(arm)) is not None:
            counters.decided(duration_s, refused=refused, degraded=degraded)

    def ended(self, decision: Picked, *, failed: bool, ttft_s: float | None) -> None:
        """A picked request is over."""
        if decision.arm is not None and (counters := self._arms.get(decision.arm)) is not None:
            counters.ended(failed=failed, ttft_s=ttft_s)
