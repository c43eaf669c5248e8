"""Fetches pages over one kept-alive HTTP/1.1 connection.

One request at a time. A body counts only when its framing says that it is whole, decoded if it was compressed, and
within MAX_BODY_BYTES either way: a cut page would hold a wrong number. Redirects are not followed: another server's
numbers are not this endpoint's. Whatever goes wrong raises MetricsFetchError and closes the connection; the next fetch
opens a new one. What takes time, reading the framing and decoding, is done in steps between which the loop has its turn,
and is counted (`spent_s`).
"""

import asyncio
import ssl
from typing import Final, NamedTuple

import anyio

from hotbay.datalayer.fetching.buffers import Buffers
from hotbay.datalayer.fetching.connection import ClosedUnansweredError, Connection
from hotbay.datalayer.fetching.decoding import EncodingError, decoding
from hotbay.datalayer.fetching.http_answer import MAX_BODY_BYTES, AnswerError
from hotbay.datalayer.fetching.tls import ClientTls
from hotbay.datalayer.fetching.turns import in_turns
from hotbay.datalayer.pages.text import PageText
from hotbay.resolving.resolver import SYSTEM, Resolver, connect

__all__ = ["MAX_BODY_BYTES", "Fetched", "MetricsClient", "MetricsFetchError"]

_PAGES: Final = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4,*/*;q=0.1"
"""The older form is preferred: it has no timestamps and exemplars to read past."""


_LOOK_SHARE: Final = 0.5
"""Of a fetch's budget, for which a look at files of TLS is waited for: one that takes longer counts for later fetches."""


class MetricsFetchError(Exception):
    """A fetch failed. `reason` is a short fixed word for counting, the text says more."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Fetched(NamedTuple):
    """A page, decoded, and the content type that it came with, in lower case and empty without.

    `text` may lie in a buffer of the client: it is good until the client's next `fetch`, `release` or `close`.
    """

    text: PageText
    content_type: bytes

    @property
    def body(self) -> bytes:
        """The page as bytes of its own."""
        return bytes(self.text)


class MetricsClient:
    """Fetches pages from one address; `close` it in the end. Calls must not overlap.

    `connects` counts the connections opened: far fewer than fetches when keep-alive works. `spent_s` is what reading and
    decoding took of the thread, all in all.

    Args:
        host: IP address or name.
        port: 1 to 65535.
        authority: what the Host header says.
        path: of the page, printable ASCII.
        accept: content types that are asked for.
        tls: for https; None for http. May be shared. When its files change, the connection is opened anew.
        buffers: shared by clients of one loop, so that a thousand of them hold a few buffers.
        resolver: knows the addresses of names.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        authority: str,
        path: str = "/metrics",
        accept: str = _PAGES,
        tls: ClientTls | None = None,
        buffers: Buffers | None = None,
        resolver: Resolver = SYSTEM,
    ) -> None:
        self.connects = 0
        self.spent_s = 0.0
        self._host = host
        self._port = port
        self._tls = tls
        self._context: ssl.SSLContext | None = None
        self._buffers = buffers or Buffers()
        self._resolver = resolver
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: {accept}\r\n"
            "Accept-Encoding: identity\r\nUser-Agent: hotbay\r\n\r\n"
        ).encode("ascii")
        self._connection: Connection | None = None

    async def fetch(self, budget_s: float) -> Fetched:
        """Return the page, within the budget, connecting included.

        Raises:
            MetricsFetchError: anything but a whole 200 answer in time.
        """
        connection, loop = self._connection, asyncio.get_running_loop()
        end = loop.time() + budget_s
        if self._tls is not None:
            await self._tls.look_if_due(loop.time(), _LOOK_SHARE * budget_s)
            if self._tls.context is not self._context:
                connection = None
        if connection is not None and connection.usable:
            try:
                return await self._exchange(connection, end - loop.time(), budget_s)
            except ClosedUnansweredError:
                # A server may close an idle connection while the request is under way; nothing was lost by that.
                pass
        connection = await self._connect(end - loop.time(), budget_s)
        try:
            return await self._exchange(connection, end - loop.time(), budget_s)
        except ClosedUnansweredError as error:
            raise MetricsFetchError("closed", "the connection was closed without an answer") from error

    def release(self) -> None:
        """The last page was read: its buffer is free for others."""
        if self._connection is not None:
            self._connection.release()

    def close(self) -> None:
        """Drop the connection, if any."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    async def _connect(self, left_s: float, budget_s: float) -> Connection:
        self.close()
        self._context = None if self._tls is None else self._tls.context
        try:
            with anyio.fail_after(left_s):
                connection = await connect(
                    lambda: Connection(self._buffers),
                    self._host,
                    self._port,
                    tls=self._context,
                    resolver=self._resolver,
                )
        except TimeoutError as error:
            why = ": its name is still looked up" if self._resolver.is_waited_for(self._host) else ""
            raise MetricsFetchError("connect_timeout", f"no connection within {budget_s:g} s{why}") from error
        except ssl.SSLError as error:
            raise MetricsFetchError("tls", f"no TLS connection: {error}") from error
        except (OSError, UnicodeError) as error:
            # A host name that no resolver takes is a UnicodeError.
            raise MetricsFetchError("connect", f"cannot connect: {error}") from error
        self.connects += 1
        self._connection = connection
        return connection

    async def _exchange(self, connection: Connection, left_s: float, budget_s: float) -> Fetched:
        try:
            answer = await connection.exchange(self._request, left_s, budget_s)
        except AnswerError as error:
            raise MetricsFetchError(error.reason, str(error)) from error
        finally:
            self._spend(connection.take_spent_s())
            if not connection.usable:
                self._connection = None
                connection.abort()
        if answer.status != 200:
            raise MetricsFetchError("status", f"answered {answer.status}")
        if not answer.framed and not answer.encoding and not bytes(answer.body)[-1:] == b"\n":
            # The end of the connection is the end of the body; a page ends with a line feed, a cut one rarely does.
            raise MetricsFetchError("truncated", "the page ends in the middle of a line")
        if answer.encoding in (b"", b"identity"):
            return Fetched(answer.body, answer.content_type)
        return Fetched(await self._decoded(bytes(answer.body), answer.encoding), answer.content_type)

    async def _decoded(self, body: bytes, encoding: bytes) -> PageText:
        try:
            return PageText.of(await in_turns(decoding(body, encoding, MAX_BODY_BYTES), self._spend))
        except EncodingError as error:
            raise MetricsFetchError(error.reason, str(error)) from error

    def _spend(self, spent_s: float) -> None:
        self.spent_s += spent_s
