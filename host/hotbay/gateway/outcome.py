"""How a request that was sent to an endpoint ended. Every started request gets exactly one of these."""

import enum

__all__ = ["Outcome"]


class Outcome(enum.StrEnum):
    """End of a started request; an answer of 4xx or 5xx that the upstream gave is `FINISHED`."""

    FINISHED = "finished"
    CLIENT_DISCONNECT = "client-disconnect"
    UPSTREAM_ERROR = "upstream-error"
    TIMEOUT = "timeout"

    @property
    def blames_endpoint(self) -> bool:
        """Whether the endpoint did not do its part."""
        return self in (Outcome.UPSTREAM_ERROR, Outcome.TIMEOUT)
