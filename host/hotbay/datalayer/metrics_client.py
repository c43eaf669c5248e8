"""Fetches metrics pages over one kept-alive HTTP/1.1 connection.

One request at a time. A body counts only when its framing says that it is whole, decoded if it was compressed, and
within MAX_BODY_BYTES either way: a cut page would hold a wrong number. Whatever goes wrong raises MetricsFetchError
and closes the connection; the next fetch opens a new one.
"""

import asyncio
import zlib
from typing import Final, cast

import anyio
import httptools

__all__ = ["MAX_BODY_BYTES", "MetricsClient", "MetricsFetchError"]

MAX_BODY_BYTES: Final = 4 << 20
"""Eighty times a vLLM page; bounds the memory that one endpoint can claim."""

_MAX_HEAD_BYTES: Final = 64 * 1024
_CONNECT_TIMEOUT_S: Final = 10.0
_ZLIB_WINDOW: Final = {b"gzip": 16 + zlib.MAX_WBITS, b"x-gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}


class MetricsFetchError(Exception):
    """A fetch failed. `reason` is a short fixed word for counting, the text says more."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class MetricsClient:
    """Fetches pages from one address; `close` it in the end. Calls must not overlap.

    `connects` counts the connections opened: far fewer than fetches when keep-alive works.
    """

    def __init__(self, host: str, port: int, *, authority: str, path: str = "/metrics") -> None:
        self.connects = 0
        self._host = host
        self._port = port
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: text/plain;version=0.0.4\r\n"
            "Accept-Encoding: identity\r\nUser-Agent: hotbay\r\n\r\n"
        ).encode("ascii")
        self._connection: _Connection | None = None

    async def fetch(self, budget_s: float) -> bytes:
        """Return the page. Connecting has a limit of its own; everything after it has to fit the budget.

        Raises:
            MetricsFetchError: anything but a whole 200 answer in time.
        """
        connection = self._connection
        if connection is not None and connection.usable:
            try:
                return await self._exchange(connection, budget_s)
            except _ClosedUnansweredError:
                # A server may close an idle connection while the request is under way; nothing was lost by that.
                pass
        connection = await self._connect()
        try:
            return await self._exchange(connection, budget_s)
        except _ClosedUnansweredError as error:
            raise MetricsFetchError("closed", "the connection was closed without an answer") from error

    def close(self) -> None:
        """Drop the connection, if any."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    async def _connect(self) -> "_Connection":
        self.close()
        loop = asyncio.get_running_loop()
        try:
            with anyio.fail_after(_CONNECT_TIMEOUT_S):
                _, connection = await loop.create_connection(_Connection, self._host, self._port)
        except TimeoutError as error:
            raise MetricsFetchError("connect_timeout", f"no connection within {_CONNECT_TIMEOUT_S:g} s") from error
        except (OSError, UnicodeError) as error:
            # A host name that no resolver takes is a UnicodeError.
            raise MetricsFetchError("connect", f"cannot connect: {error}") from error
        self.connects += 1
        self._connection = connection
        return connection

    async def _exchange(self, connection: "_Connection", budget_s: float) -> bytes:
        try:
            with anyio.fail_after(budget_s):
                return await connection.exchange(self._request)
        except TimeoutError as error:
            raise MetricsFetchError("timeout", f"no whole answer within {budget_s:g} s") from error
        finally:
            if not connection.usable:
                self.close()


class _ClosedUnansweredError(Exception):
    """The peer closed before the first byte of an answer."""


class _Connection(asyncio.Protocol):
    """One connection: a request out, an answer in; httptools calls the `on_` methods."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[bytes] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._keep_alive = True
        self._begin()

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._keep_alive and self._waiter is None and self._transport is not None

    async def exchange(self, request: bytes) -> bytes:
        """Send the request and return the decoded body of a 200 answer."""
        assert self._transport is not None
        assert self._waiter is None
        self._begin()
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._waiter
        except asyncio.CancelledError:
            # The rest of the answer would be taken for that of the next request.
            self.abort()
            raise
        finally:
            self._waiter = None

    def abort(self) -> None:
        """Close at once."""
        self._keep_alive = False
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _begin(self) -> None:
        self._received = 0
        self._status = 0
        self._encoding = b""
        self._framed = False
        self._body: list[bytes] = []

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance check: uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            # Nobody asked: whatever this is, it is not the answer to the next request.
            self.abort()
            return
        self._received += len(data)
        if self._received > MAX_BODY_BYTES + _MAX_HEAD_BYTES:
            self._fail("too_large", f"the answer is larger than {MAX_BODY_BYTES} bytes")
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail("not_http", f"not an HTTP answer: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._keep_alive = False
        if self._waiter is None or self._waiter.done():
            return
        if not self._received:
            self._waiter.set_exception(_ClosedUnansweredError())
        elif self._status and not self._framed and exc is None:
            self._finish_unframed()
        else:
            self._fail("truncated", "the connection was closed in the middle of the answer")

    def _finish_unframed(self) -> None:
        """The end of the connection is the end of the body; a page ends with a line feed, a cut one rarely does."""
        body = b"".join(self._body)
        if body.endswith(b"\n") or self._encoding or self._status != 200:
            self._complete()
        else:
            self._fail("truncated", "the page ends in the middle of a line")

    # The parser's side.

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._framed = True
        elif name == b"content-encoding":
            self._encoding = value.strip().lower()

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if 100 <= self._status < 200:
            self._status = 0
            return
        # The parser knows it only here; asked later it says no.
        self._keep_alive = self._keep_alive and self._parser.should_keep_alive()
        self._complete()

    def _complete(self) -> None:
        if self._waiter is None or self._waiter.done():
            self._keep_alive = False
            return
        if self._status != 200:
            self._waiter.set_exception(MetricsFetchError("status", f"answered {self._status}"))
            return
        try:
            self._waiter.set_result(_decoded(b"".join(self._body), self._encoding))
        except MetricsFetchError as error:
            self._waiter.set_exception(error)

    def _fail(self, reason: str, message: str) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(MetricsFetchError(reason, message))
        self.abort()


def _decoded(body: bytes, encoding: bytes) -> bytes:
    if len(body) > MAX_BODY_BYTES:
        raise MetricsFetchError("too_large", f"the page is larger than {MAX_BODY_BYTES} bytes")
    if encoding in (b"", b"identity"):
        return body
    window = _ZLIB_WINDOW.get(encoding)
    if window is None:
        raise MetricsFetchError("encoding", f"unknown content encoding {encoding[:40]!r}")
    decompressor = zlib.decompressobj(window)
    try:
        page = decompressor.decompress(body, MAX_BODY_BYTES)
    except zlib.error as error:
        raise MetricsFetchError("encoding", f"the body is not {encoding.decode('ascii', 'replace')}") from error
    if decompressor.unconsumed_tail or not decompressor.eof:
        reason = "too_large" if decompressor.unconsumed_tail else "truncated"
        raise MetricsFetchError(reason, f"the page is cut, or larger than {MAX_BODY_BYTES} bytes when decoded")
    return page
