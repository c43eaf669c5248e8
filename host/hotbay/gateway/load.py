"""What one request counts at the endpoint that it is sent to: itself, and its tokens where somebody wants to know those.

Each endpoint is counted at by what the decision says of it: of a fallback that is what it has cached of the prompt, not what
the first one has. Invariant: every `started` of the ledger is answered by exactly one `finished`, with what is left of its
tokens.
"""

from hotbay.gateway.seams import Ledger
from hotbay.scheduling.decision import Picked

__all__ = ["Load"]


class Load:
    """See the module. One of a request; it is at one endpoint at a time."""

    __slots__ = ("_at", "_ledger", "_left", "_released")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._at = ""
        self._left: int | None = None
        self._released = 0

    def start(self, endpoint_id: str, picked: Picked) -> None:
        """The request goes there by this decision; it is nowhere now."""
        tokens = picked.tokens_at(endpoint_id)
        self._at, self._left = endpoint_id, tokens
        self._released = 0 if tokens is None or not picked.releases_tokens else tokens - picked.answer_tokens
        self._ledger.started(endpoint_id, tokens)

    def answered(self) -> None:
        """The first byte of an answer's body came: its prompt was computed."""
        if self._released and self._left is not None:
            self._left -= self._released
            self._ledger.relieved(self._at, self._released)
            self._released = 0

    def end(self) -> None:
        """The request is no business of the endpoint any more."""
        self._ledger.finished(self._at, self._left)
        self._at = ""
