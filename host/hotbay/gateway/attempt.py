"""The attempt of an exchange that is under way at one endpoint, as passive health is told of it.

Invariant: what is begun is told once, by `tell` or `tell_silence`, whichever comes first; a second word is ignored.
"""

from collections.abc import Callable

from hotbay.datalayer.health.patience import Awaited
from hotbay.datalayer.health.reports import Attempt
from hotbay.gateway.seams import Attempts

__all__ = ["AttemptUnderWay"]


class AttemptUnderWay:
    """One after another. `clock` is monotonic, in seconds."""

    def __init__(self, attempts: Attempts, clock: Callable[[], float]) -> None:
        self._attempts = attempts
        self._clock = clock
        self._endpoint_id = ""
        self._era: int | None = None
        self._told_era = 0
        self._pieces = 0
        self.waits_since = 0.0

    @property
    def is_untold(self) -> bool:
        """Whether one is under way that nothing was told of."""
        return self._era is not None

    @property
    def waited_s(self) -> float:
        """Since `wait` was called last."""
        return self._clock() - self.waits_since

    def begin(self, endpoint_id: str) -> None:
        """Another attempt, at this endpoint."""
        self._endpoint_id = endpoint_id
        self._era = self._attempts.begin(endpoint_id)

    def wait(self) -> None:
        """From now on the endpoint is waited for, by a connection or by a request that is sent."""
        self.waits_since = self._clock()
        self._pieces = self._attempts.pieces(self._endpoint_id)

    def heard(self) -> None:
        """A piece of a body came."""
        self._attempts.heard(self._endpoint_id)

    def tell(self, attempt: Attempt, ttft_s: float | None = None) -> None:
        """Tell what became of it."""
        era, self._era = self._era, None
        if era is not None:
            self._told_era = era
            self._attempts.ended(self._endpoint_id, era, attempt, ttft_s)

    def tell_silence(self, attempt: Attempt, awaited: Awaited) -> None:
        """Tell that not a byte of a body came since `wait`: SILENT or LATE."""
        era, self._era = self._era, None
        if era is not None:
            self._told_era = era
            self._attempts.silent(self._endpoint_id, era, attempt, self._pieces, awaited, self.waited_s)

    def tell_answer(self, status: int, *, has_body: bool, streams: bool, is_over: bool) -> None:
        """Tell of an answer, once its body begins, or when it ends without one.

        Only a stream that began says how fast tokens come: no error, and no answer without a body.
        """
        if self._era is None:
            return
        if status >= 500:
            self.tell(Attempt.FAILED)
        elif has_body or is_over:
            self.tell(Attempt.ANSWERED, self.waited_s if streams and has_body and status < 400 else None)

    def broke_off(self) -> None:
        """The answer that was told of did not end as it should."""
        self._attempts.ended(self._endpoint_id, self._told_era, Attempt.BROKEN)
