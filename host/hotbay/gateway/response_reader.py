"""Turns the bytes of an upstream connection into one response: httptools with bounds, and no IO.

Pure and incremental: however the bytes are split, the same response comes out. Invariants: what follows the response
never becomes part of it and ends the connection's use; a response has one framing or is an error.

Trap: `should_keep_alive()` is true only inside `on_message_complete`; asked later, every request opens a connection.
"""

import httptools

from hotbay.gateway.head import Header

__all__ = ["ResponseError", "ResponseReader"]


class ResponseError(Exception):
    """The upstream sent something that is not one HTTP response."""


class ResponseReader:
    """Reads one response. `feed` fills the fields; the caller empties `parts` as it relays them.

    Interim responses are passed over. `length` is None when the body ends by chunks or by the connection's end.
    """

    __slots__ = (
        "_interim",
        "_parser",
        "_until_close",
        "ended",
        "head_done",
        "header_bytes",
        "header_limit",
        "headers",
        "keep_alive",
        "length",
        "parts",
        "reason",
        "status",
    )

    def __init__(self, header_limit: int) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._interim = False
        self._until_close = False
        self.header_limit = header_limit
        self.parts: list[bytes] = []
        self.ended = False
        self.keep_alive = False
        self.on_message_begin()

    def feed(self, data: bytes) -> None:
        """Take bytes of the upstream.

        Raises:
            ResponseError: they are no response, or something follows it that nobody asked for.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise ResponseError("it changes protocols") from error
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            if not self.ended:
                raise ResponseError(str(error)) from error
            self.keep_alive = False
        if self.head_done:
            return
        self.header_bytes += len(data)
        if self.header_bytes > self.header_limit:
            raise ResponseError(f"its header is larger than {self.header_limit} bytes")

    def end_of_stream(self) -> bool:
        """The upstream closed: was that the end of the body?"""
        if self.head_done and self._until_close and not self.ended:
            self.ended = True
            self.keep_alive = False
        return self.ended

    def on_message_begin(self) -> None:
        if self.ended:
            # Bytes of a second response: this one stands, the connection cannot be trusted any more.
            self.keep_alive = False
            return
        self.status = 0
        self.reason = b""
        self.headers: list[Header] = []
        self.header_bytes = 0
        self.head_done = False
        self.length: int | None = None

    def on_status(self, reason: bytes) -> None:
        if not self.ended:
            self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not (self.ended or self.head_done):
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.ended:
            return
        self.status = self._parser.get_status_code()
        if self.status < 100:
            raise ResponseError(f"its status is {self.status}")
        if sum(len(name) + len(value) + 4 for name, value in self.headers) > self.header_limit:
            raise ResponseError(f"its header is larger than {self.header_limit} bytes")
        self._interim = self.status < 200
        if self._interim:
            return
        self.head_done = True
        chunked = False
        for name, value in self.headers:
            if name == b"content-length":
                self.length = int(value)
            elif name == b"transfer-encoding":
                if value.strip().lower() != b"chunked":
                    raise ResponseError("its transfer coding is not chunked")
                chunked = True
        self._until_close = self.length is None and not chunked and self.status not in (204, 304)

    def on_body(self, body: bytes) -> None:
        if not self.ended:
            self.parts.append(body)

    def on_message_complete(self) -> None:
        if self.ended or self._interim:
            return
        self.ended = True
        self.keep_alive = self._parser.should_keep_alive()
