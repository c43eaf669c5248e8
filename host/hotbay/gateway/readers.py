"""Turns the bytes of a connection into requests, or into one response: httptools with bounds, and no IO.

Pure and incremental: however the bytes are split, the same messages come out. Callbacks of the parser only note what
they see; whoever feeds acts on it afterwards, so nothing here runs other people's code. The parser is strict: two
lengths, a length with a transfer coding, bare line feeds, folded headers and bad chunk sizes never become a message.

Trap: `should_keep_alive()` is true only inside `on_message_complete`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import httptools

from hotbay.gateway.answers import Refusal
from hotbay.gateway.head import Header

__all__ = ["RequestReader", "ResponseError", "ResponseReader", "WireRequest"]


@dataclass(slots=True, frozen=True)
class WireRequest:
    """One request as it came: names of headers in lower case, the body without its framing."""

    method: bytes
    target: bytes
    http_1_0: bool
    headers: tuple[Header, ...]
    body: bytes
    keep_alive: bool
    has_framing: bool


class _Framing(NamedTuple):
    lengths: list[bytes]
    codings: list[bytes]
    hosts: int


class RequestReader:
    """Reads the requests of one client connection.

    `feed` returns the requests that became complete. After `failure` is set the connection is lost: answer what came
    before, then the failure, then close. `expects_continue` is true while a client waits to be told to send its body.
    """

    def __init__(self, header_bytes: int, body_bytes: int) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._header_limit = header_bytes
        self._body_limit = body_bytes
        self._complete: list[WireRequest] = []
        self._begun = 0
        self._unheard_bytes = 0
        self._last_seen = False
        self.failure: Refusal | None = None
        self.in_head = False
        self.in_body = False
        self.expects_continue = False
        self._reset()

    @property
    def pending_bytes(self) -> int:
        """Size of the body that is still arriving, as far as it is here."""
        return self._body_bytes

    def feed(self, data: bytes) -> list[WireRequest]:
        """Take what the socket gave; return the requests that it completed, in order."""
        if self.failure is not None or self._last_seen:
            return []
        self._begun = 0
        self._unheard_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(501, "upgrade-unsupported", "This server does not change protocols.")
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            if not self._last_seen:
                self._fail(400, "malformed-http", f"Not a valid HTTP/1.1 request: {error}.")
        self._check_unfinished(len(data))
        complete, self._complete = self._complete, []
        return complete

    def _check_unfinished(self, fed_bytes: int) -> None:
        """The parser keeps an unfinished header without saying so: bound what it was fed since it last spoke."""
        if self._begun > 1:
            self._unheard_bytes = 0
        elif self._begun == 1:
            self._unheard_bytes = min(self._unheard_bytes, fed_bytes)
        if self.failure is None and (self.in_head or self.in_body) and self._unheard_bytes > self._header_limit:
            self._fail(431, "header-too-large", f"The header is larger than {self._header_limit} bytes.")

    def _reset(self) -> None:
        self._target = b""
        self._headers: list[Header] = []
        self._header_bytes = 0
        self._body: bytes | bytearray = b""
        self._body_bytes = 0
        self._has_framing = False

    def _fail(self, status: int, code: str, message: str) -> None:
        if self.failure is None:
            self.failure = Refusal(status, code, message)
            self.in_head = self.in_body = self.expects_continue = False
            self._body = b""

    def on_message_begin(self) -> None:
        self._reset()
        self._begun += 1
        self.in_head = self.failure is None

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._header_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value) + 4
        if self.in_head:
            self._headers.append((name.lower(), value))
        elif self._header_bytes > self._header_limit:
            self._fail(431, "header-too-large", f"The trailer is larger than {self._header_limit} bytes.")

    def on_headers_complete(self) -> None:
        if self.failure is not None:
            return
        self.in_head, self.in_body = False, True
        self._unheard_bytes = 0
        if self._header_bytes > self._header_limit:
            self._fail(431, "header-too-large", f"The header is larger than {self._header_limit} bytes.")
        elif self._parser.should_upgrade():
            self._fail(501, "upgrade-unsupported", "This server does not change protocols.")
        else:
            self._check_framing()

    def _check_framing(self) -> None:
        version = self._parser.get_http_version()
        lengths, codings, hosts = [], [], 0
        expect = b""
        for name, value in self._headers:
            if name == b"content-length":
                lengths.append(value)
            elif name == b"transfer-encoding":
                codings.append(value.strip().lower())
            elif name == b"host":
                hosts += 1
            elif name == b"expect":
                expect = value.strip().lower()
        self._has_framing = bool(lengths or codings)
        self._check_declared(version, _Framing(lengths, codings, hosts))
        if self.failure is None and expect:
            if expect != b"100-continue":
                self._fail(417, "expectation-failed", "The only expectation that is met is 100-continue.")
            self.expects_continue = self.failure is None and version == "1.1" and self._has_framing

    def _check_declared(self, version: str, framing: _Framing) -> None:
        if version not in ("1.0", "1.1"):
            self._fail(505, "http-version-unsupported", "This server speaks HTTP/1.1 and HTTP/1.0.")
        elif framing.hosts > 1 or (framing.hosts == 0 and version == "1.1"):
            self._fail(400, "malformed-http", f"Exactly one Host header is needed, found {framing.hosts}.")
        elif framing.codings and (version == "1.0" or framing.lengths):
            self._fail(400, "malformed-http", "Transfer-Encoding is not allowed here.")
        elif framing.codings and framing.codings != [b"chunked"]:
            self._fail(501, "transfer-coding-unsupported", "The only transfer coding that is understood is chunked.")
        elif framing.lengths and int(framing.lengths[0]) > self._body_limit:
            self._body_too_large()

    def _body_too_large(self) -> None:
        self._fail(413, "body-too-large", f"The body is larger than {self._body_limit} bytes.")

    def on_body(self, body: bytes) -> None:
        if self.failure is not None:
            return
        self.expects_continue = False
        self._unheard_bytes = 0
        self._body_bytes += len(body)
        if self._body_bytes > self._body_limit:
            self._body_too_large()
        elif not self._body:
            self._body = body
        else:
            # One buffer, not a list: a body in chunks of one byte would cost forty times its size.
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += body

    def on_message_complete(self) -> None:
        if self.failure is not None:
            return
        self.in_body = self.expects_continue = False
        self._unheard_bytes = 0
        keep_alive = self._parser.should_keep_alive()
        self._last_seen = not keep_alive
        self._complete.append(
            WireRequest(
                method=self._parser.get_method(),
                target=self._target,
                http_1_0=self._parser.get_http_version() == "1.0",
                headers=tuple(self._headers),
                body=bytes(self._body),
                keep_alive=keep_alive,
                has_framing=self._has_framing,
            )
        )
        self._reset()


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
