"""The bounds of the data path: sizes, counts and times, each with the reason for its default."""

from dataclasses import dataclass

__all__ = ["GatewayLimits"]


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """What one gateway allows. Sizes in bytes, times in seconds.

    Args:
        header_bytes: request line and headers of a request, and status line and headers of a response.
        body_bytes: a request's body, whatever its framing.
        connections: client connections at once; one more is answered 503 and closed.
        pipelined_requests: requests that may wait behind the one being answered.
        pipelined_bytes: bodies of those; a client that sends more is answered what it is owed and closed.
        idle_per_endpoint: upstream connections kept for the next request.
        idle_upstream_s: age at which a kept connection is closed; servers close theirs after 5 s to minutes.
        connect_s: time for one TCP connection to an upstream, before and besides that of `first_byte_s`.
        first_byte_s: from the request's last byte out to the first byte of a body in: servers send the head of a stream
            before they begin to work. Generous: a full queue of long prefills takes minutes, and a client that waits less
            says so by closing. A decision may take as long.
        idle_s: longest silence inside a response, and longest time a client may leave it unread.
        head_s: from a request's first byte to the end of its headers.
        body_s: longest silence inside a request's body.
        body_rate_bytes_per_s: slowest that a body may come, once `body_s` has passed: bytes one at a time end no silence.
            Slower than any line, and a body of the largest size still has hours.
        keep_alive_s: how long a client connection may stay open between requests.
        drain_idle_s: how long a client connection has to be quiet before a drain closes it.
        linger_s: how long input is discarded after an answer that closes, so that the answer is not lost to a reset.
        tick_s: how often deadlines are looked at; a timeout fires up to this much late.
        pick_s: how long a `/pick` may stay unsettled.
        picks: `/pick` answers that may be unsettled at once.
    """

    header_bytes: int = 64 * 1024
    body_bytes: int = 16 * 1024 * 1024
    connections: int = 8192
    pipelined_requests: int = 32
    pipelined_bytes: int = 1024 * 1024
    idle_per_endpoint: int = 128
    idle_upstream_s: float = 60.0
    connect_s: float = 5.0
    first_byte_s: float = 300.0
    idle_s: float = 300.0
    head_s: float = 30.0
    body_s: float = 60.0
    body_rate_bytes_per_s: int = 1024
    keep_alive_s: float = 75.0
    drain_idle_s: float = 1.0
    linger_s: float = 1.0
    tick_s: float = 0.25
    pick_s: float = 60.0
    picks: int = 100_000
