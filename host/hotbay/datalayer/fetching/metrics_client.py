"""Fetches pages over one kept-alive HTTP/1.1 connection.

One request at a time. A body counts only when its framing says that it is whole, decoded if it was compressed, and
within MAX_BODY_BYTES either way: a cut page would hold a wrong number. Redirects are not followed: another server's
numbers are not this endpoint's. Whatever goes wrong raises MetricsFetchError and closes the connection; the next fetch
opens a new one.
"""

import asyncio
import ssl
import zlib
from typing import Final, NamedTuple, cast

import anyio

from hotbay.datalayer.fetching.http_answer import MAX_BODY_BYTES, Answer, AnswerError, AnswerReader, Buffers
from hotbay.datalayer.pages.text import PageText

__all__ = ["MAX_BODY_BYTES", "Fetched", "MetricsClient", "MetricsFetchError"]

_ZLIB_WINDOW: Final = {b"gzip": 16 + zlib.MAX_WBITS, b"x-gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
_MOST_MEMBERS: Final = 16
"""Of a gzip body: each costs a copy of those after it."""
_PAGES: Final = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4,*/*;q=0.1"
"""The older form is preferred: it has no timestamps and exemplars to read past."""


_NOWHERE: Final = memoryview(bytearray(4096))


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

    `connects` counts the connections opened: far fewer than fetches when keep-alive works.

    Args:
        host: IP address or name.
        port: 1 to 65535.
        authority: what the Host header says.
        path: of the page, printable ASCII.
        accept: content types that are asked for.
        tls: for https; None for http.
        buffers: shared by clients of one loop, so that a thousand of them hold a few buffers.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        authority: str,
        path: str = "/metrics",
        accept: str = _PAGES,
        tls: ssl.SSLContext | None = None,
        buffers: Buffers | None = None,
    ) -> None:
        self.connects = 0
        self._host = host
        self._port = port
        self._tls = tls
        self._buffers = buffers or Buffers()
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: {accept}\r\n"
            "Accept-Encoding: identity\r\nUser-Agent: hotbay\r\n\r\n"
        ).encode("ascii")
        self._connection: _Connection | None = None

    async def fetch(self, budget_s: float) -> Fetched:
        """Return the page, within the budget, connecting included.

        Raises:
            MetricsFetchError: anything but a whole 200 answer in time.
        """
        connection, loop = self._connection, asyncio.get_running_loop()
        end = loop.time() + budget_s
        if connection is not None and connection.usable:
            try:
                return await self._exchange(connection, budget_s, budget_s)
            except _ClosedUnansweredError:
                # A server may close an idle connection while the request is under way; nothing was lost by that.
                pass
        connection = await self._connect(end - loop.time(), budget_s)
        try:
            return await self._exchange(connection, end - loop.time(), budget_s)
        except _ClosedUnansweredError as error:
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

    async def _connect(self, left_s: float, budget_s: float) -> "_Connection":
        self.close()
        loop = asyncio.get_running_loop()
        try:
            with anyio.fail_after(left_s):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._buffers), self._host, self._port, ssl=self._tls
                )
        except TimeoutError as error:
            raise MetricsFetchError("connect_timeout", f"no connection within {budget_s:g} s") from error
        except ssl.SSLError as error:
            raise MetricsFetchError("tls", f"no TLS connection: {error}") from error
        except (OSError, UnicodeError) as error:
            # A host name that no resolver takes is a UnicodeError.
            raise MetricsFetchError("connect", f"cannot connect: {error}") from error
        self.connects += 1
        self._connection = connection
        return connection

    async def _exchange(self, connection: "_Connection", left_s: float, budget_s: float) -> Fetched:
        try:
            answer = await connection.exchange(self._request, left_s, budget_s)
        finally:
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
        return Fetched(PageText.of(_decoded(bytes(answer.body), answer.encoding)), answer.content_type)


class _ClosedUnansweredError(Exception):
    """The peer closed before the first byte of an answer."""


class _Connection(asyncio.BufferedProtocol):
    """One connection: a request out, an answer in, read where the kernel wrote it."""

    def __init__(self, buffers: Buffers) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._reader = AnswerReader(buffers)
        self._keep_alive = True

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._keep_alive and self._waiter is None and self._transport is not None

    async def exchange(self, request: bytes, left_s: float, budget_s: float) -> Answer:
        """Send the request and return the answer, whatever its status, within what is left of the budget."""
        assert self._transport is not None
        assert self._waiter is None
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Answer] = loop.create_future()
        self._waiter = waiter
        self._reader.begin()
        self._transport.write(request)
        # A cancel scope for each of thousands of fetches a second would cost as much as reading the page.
        deadline = loop.call_later(left_s, self._fail, "timeout", f"no whole answer within {budget_s:g} s")
        try:
            return await waiter
        except asyncio.CancelledError:
            # The rest of the answer would be taken for that of the next request.
            self.abort()
            raise
        finally:
            deadline.cancel()
            self._waiter = None

    def release(self) -> None:
        """The last answer was read."""
        if self._waiter is None:
            self._reader.release()

    def abort(self) -> None:
        """Close at once."""
        self._keep_alive = False
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance check: uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        # What comes unasked must not lie over an answer that is still being read.
        return self._reader.space() if self._waiter is not None and not self._waiter.done() else _NOWHERE

    def buffer_updated(self, nbytes: int) -> None:
        if self._waiter is None or self._waiter.done():
            # Nobody asked: whatever this is, it is not the answer to the next request.
            self.abort()
            return
        try:
            answer = self._reader.received(nbytes)
        except AnswerError as error:
            self._fail(error.reason, str(error))
            return
        if answer is not None:
            self._keep_alive = self._keep_alive and answer.reusable
            self._waiter.set_result(answer)

    def eof_received(self) -> bool:
        # False: the transport closes itself, and `connection_lost` says the rest.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._keep_alive = False
        if self._waiter is not None and not self._waiter.done():
            if not self._reader.started:
                self._waiter.set_exception(_ClosedUnansweredError())
            elif exc is not None:
                self._fail("truncated", "the connection was lost in the middle of the answer")
            else:
                self._finish_at_end(self._waiter)

    def _finish_at_end(self, waiter: "asyncio.Future[Answer]") -> None:
        try:
            waiter.set_result(self._reader.ended())
        except AnswerError as error:
            self._fail(error.reason, str(error))

    def _fail(self, reason: str, message: str) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(MetricsFetchError(reason, message))
        self.abort()


def _decoded(body: bytes, encoding: bytes) -> bytes:
    """The page of a compressed body. Raises `MetricsFetchError` unless it is whole, and nothing follows it."""
    window = _ZLIB_WINDOW.get(encoding)
    if window is None:
        raise MetricsFetchError("encoding", f"unknown content encoding {encoding[:40]!r}")
    page, rest = bytearray(), body
    # A body of gzip may be several members one after the other (RFC 1952, 2.2): together they are the page.
    for _ in range(_MOST_MEMBERS):
        decompressor = zlib.decompressobj(window)
        try:
            page += decompressor.decompress(rest, MAX_BODY_BYTES + 1 - len(page))
        except zlib.error as error:
            raise MetricsFetchError("encoding", f"the body is not {encoding.decode('ascii', 'replace')}") from error
        if len(page) > MAX_BODY_BYTES:
            raise MetricsFetchError("too_large", f"the page is larger than {MAX_BODY_BYTES} bytes when decoded")
        if not decompressor.eof:
            raise MetricsFetchError("truncated", "the page is cut")
        rest = decompressor.unused_data
        if not rest:
            return bytes(page)
        if encoding == b"deflate":
            break
    raise MetricsFetchError("encoding", f"{len(rest)} bytes follow the compressed page")
