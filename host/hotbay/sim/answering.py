"""Turns the tokens of a request into the bytes that its client gets: a stream of events, or one body. Pure."""

from typing import Protocol

from hotbay.sim.answers import LAST_CHUNK, EventStream, chunk, head, stream_head, usage, whole_body
from hotbay.sim.asking import Asked

__all__ = ["Answering", "StreamedAnswer", "WholeAnswer"]


class Answering(Protocol):
    """`begin` once, then `put` until the tokens that bring a reason. `is_kept`: the connection stays for another request."""

    is_kept: bool

    def begin(self) -> bytes: ...

    def put(self, tokens: int, finish_reason: str, cached_tokens: int, /) -> bytes: ...


class StreamedAnswer:
    """Events: the first token's at once, the others' `interval` tokens at a time."""

    def __init__(
        self,
        asked: Asked,
        *,
        id: str,  # noqa: A002
        created: int,
        headers: bytes,
        interval: int,
        tells_cached_tokens: bool,
        is_kept: bool,
    ) -> None:
        self.is_kept = is_kept
        self._events = EventStream(asked, id, created)
        self._headers = headers
        self._interval = interval
        self._tells_cached_tokens = tells_cached_tokens
        self._held = 0
        self._has_begun = False

    def begin(self) -> bytes:
        """The real server begins its answer as soon as the request is accepted, long before the first token."""
        return stream_head(self._headers, is_kept=self.is_kept)

    def put(self, tokens: int, finish_reason: str, cached_tokens: int, /) -> bytes:
        self._held += tokens
        if self._has_begun and self._held < self._interval and not finish_reason:
            return b""
        told = cached_tokens if self._tells_cached_tokens else None
        data = chunk(self._events.tokens(self._held, finish_reason, told))
        self._held = 0
        self._has_begun = True
        if finish_reason:
            data += chunk(self._events.end(told)) + LAST_CHUNK
        return data


class WholeAnswer:
    """One body, when the last token is there."""

    def __init__(
        self,
        asked: Asked,
        *,
        id: str,  # noqa: A002
        created: int,
        headers: bytes,
        tells_cached_tokens: bool,
        is_kept: bool,
    ) -> None:
        self.is_kept = is_kept
        self._asked = asked
        self._id = id
        self._created = created
        self._headers = headers
        self._tells_cached_tokens = tells_cached_tokens

    def begin(self) -> bytes:
        return b""

    def put(self, tokens: int, finish_reason: str, cached_tokens: int, /) -> bytes:
        if not finish_reason:
            return b""
        told = usage(self._asked, self._asked.work.output_tokens, cached_tokens if self._tells_cached_tokens else None)
        body = whole_body(self._asked, self._id, self._created, told, finish_reason)
        return head(200, "application/json", len(body), self._headers, is_kept=self.is_kept) + body
