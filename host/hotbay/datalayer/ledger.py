"""How many requests of ours each endpoint is working on, and how many tokens those count.

Counts are kept by id, not by row: they outlive a removal, so that a request which ends after its endpoint was taken
away, or taken away and put back, settles its own count and nobody else's. Invariants: every `finished` answers one
`started`, with the tokens that it told and that no `relieved` took away since; no count is ever below zero; an id without
requests takes no memory, and counts no tokens.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Ledger", "LedgerEntry", "UnbalancedLedgerError"]

_NO_ROW = -1


class UnbalancedLedgerError(Exception):
    """More was taken away than an endpoint has in flight: a fault of the caller, never expected."""

    def __init__(self, endpoint_id: str) -> None:
        super().__init__(f"nothing is in flight on {endpoint_id!r}: a request was settled twice, or never started")
        self.endpoint_id = endpoint_id


@dataclass(slots=True)
class LedgerEntry:
    """What is in flight on one endpoint; `untold` requests were started without a token count."""

    requests: int = 0
    tokens: int = 0
    untold: int = 0

    @property
    def told(self) -> int:
        """Requests that said what they count."""
        return self.requests - self.untold

    @property
    def known_tokens(self) -> int:
        """Tokens in flight, -1 when some request did not say."""
        return -1 if self.untold else self.tokens


class Ledger:
    """Counts by id, mirrored by row for readers that want to see the count of this very moment.

    The store tells it which id sits in which row; everybody else calls `started`, `relieved` and `finished` only.
    """

    def __init__(self) -> None:
        self._entries: dict[str, LedgerEntry] = {}
        self._rows: dict[str, int] = {}
        self._by_row: npt.NDArray[np.float32] = np.zeros(0, np.float32)
        self._tokens_by_row: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.changed = False

    @property
    def total(self) -> int:
        """Requests in flight on all endpoints, removed ones included."""
        return sum(entry.requests for entry in self._entries.values())

    @property
    def by_row(self) -> npt.NDArray[np.float32]:
        """Live counts by row, read-only; longer than a snapshot's rows, and reallocated when the store grows."""
        view = self._by_row.view()
        view.flags.writeable = False
        return view

    @property
    def tokens_by_row(self) -> npt.NDArray[np.int64]:
        """Tokens in flight by row, -1 where some request did not say; otherwise as `by_row`."""
        view = self._tokens_by_row.view()
        view.flags.writeable = False
        return view

    def started(self, endpoint_id: str, tokens: int | None = None) -> None:
        """A request was sent to the endpoint. Call exactly once, before the request is written."""
        entry = self._entries.get(endpoint_id)
        if entry is None:
            entry = self._entries[endpoint_id] = LedgerEntry()
        entry.requests += 1
        if tokens is None:
            entry.untold += 1
        else:
            entry.tokens += tokens
        self._mirror(endpoint_id, entry)

    def relieved(self, endpoint_id: str, tokens: int) -> None:
        """A request that told its tokens counts so many less from now on; it itself goes on to count.

        Raises:
            UnbalancedLedgerError: no such request is in flight there, or it cannot have told as many. Nothing changed.
        """
        entry = self._entries.get(endpoint_id)
        if entry is None or not entry.told or tokens > entry.tokens:
            raise UnbalancedLedgerError(endpoint_id)
        entry.tokens -= tokens
        self._mirror(endpoint_id, entry)

    def finished(self, endpoint_id: str, tokens: int | None = None) -> None:
        """The request is over, however it ended; `tokens` as given to `started`, less what `relieved` took away.

        Raises:
            UnbalancedLedgerError: nothing is in flight there, or less than that. Nothing changed.
        """
        entry = self._entries.get(endpoint_id)
        if entry is None or not (entry.untold if tokens is None else entry.told and tokens <= entry.tokens):
            raise UnbalancedLedgerError(endpoint_id)
        entry.requests -= 1
        if tokens is None:
            entry.untold -= 1
        else:
            entry.tokens -= tokens
        if not entry.requests:
            del self._entries[endpoint_id]
        self._mirror(endpoint_id, entry)

    def in_flight(self, endpoint_id: str) -> int:
        """Requests in flight on one endpoint."""
        entry = self._entries.get(endpoint_id)
        return entry.requests if entry else 0

    def entry(self, endpoint_id: str) -> LedgerEntry | None:
        """The endpoint's counts, None when nothing is in flight."""
        return self._entries.get(endpoint_id)

    def bind(self, endpoint_id: str, row: int) -> None:
        """The id now sits in this row."""
        if row >= len(self._by_row):
            more = max(16, len(self._by_row), row + 1 - len(self._by_row))
            self._by_row = np.concatenate([self._by_row, np.zeros(more, np.float32)])
            self._tokens_by_row = np.concatenate([self._tokens_by_row, np.zeros(more, np.int64)])
        self._rows[endpoint_id] = row
        self._mirror(endpoint_id, self._entries.get(endpoint_id))

    def unbind(self, endpoint_id: str) -> None:
        """The id has no row any more; its count goes on."""
        self._mirror(endpoint_id, None)
        del self._rows[endpoint_id]

    def _mirror(self, endpoint_id: str, entry: LedgerEntry | None) -> None:
        row = self._rows.get(endpoint_id, _NO_ROW)
        if row != _NO_ROW:
            self._by_row[row] = entry.requests if entry else 0
            self._tokens_by_row[row] = entry.known_tokens if entry else 0
            self.changed = True
