"""Turns the bytes of a client connection into requests: httptools with bounds, and no IO.

Pure and incremental: however the bytes are split, the same messages come out. Callbacks of the parser only note what
they see; whoever feeds acts on it afterwards, so nothing here runs other people's code. The parser is strict: two
lengths, a length with a transfer coding, bare line feeds, folded headers and bad chunk sizes never become a message. An
offer to go on in another protocol is ignored, as RFC 9110, 7.8 allows, unless its client can do nothing with HTTP.

Trap: `should_keep_alive()` is true only inside `on_message_complete`.
"""

import enum
from typing import NamedTuple

import httptools

from hotbay.gateway.answers import Refusal
from hotbay.gateway.head import Header

__all__ = ["Phase", "RequestReader", "WireRequest"]


class Phase(enum.Enum):
    """What the next byte belongs to."""

    BETWEEN = "between requests"
    HEAD = "head"
    BODY = "body"


class WireRequest(NamedTuple):
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
        self._is_replayed = False
        self.failure: Refusal | None = None
        self.phase = Phase.BETWEEN
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
        rest = data
        while rest:
            rest = self._parse(rest)
        self._check_unfinished(len(data))
        complete, self._complete = self._complete, []
        return complete

    def _parse(self, data: bytes) -> bytes:
        """Feed the parser; returns what it left because an offer of another protocol ended its work."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._is_replayed and self.failure is None:
                self._parser = httptools.HttpRequestParser(self)
                self._parser.feed_data(self._head_without_offer())
                return data[offer.args[0] :]
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            if not self._last_seen:
                self._fail(400, "malformed-http", f"Not a valid HTTP/1.1 request: {error}.")
        return b""

    def _head_without_offer(self) -> bytes:
        """What a parser has to know of the request to read its body: with the offer it reads none."""
        lines = [b"%b / HTTP/%b" % (self._method, self._version.encode())]
        for name, value in self._headers:
            if name in (b"content-length", b"transfer-encoding"):
                lines.append(b"%b: %b" % (name, value))
            elif name == b"connection":
                words = {word.strip() for word in value.lower().split(b",")}
                lines += [b"connection: %b" % word for word in (b"close", b"keep-alive") if word in words]
        return b"\r\n".join([*lines, b"", b""])

    def _needs_upgrade(self) -> bool:
        """Whether the client wants to speak something else and nothing else."""
        offers = b",".join(value for name, value in self._headers if name == b"upgrade").lower().split(b",")
        return self._method == b"CONNECT" or any(offer.strip().startswith(b"websocket") for offer in offers)

    def _check_unfinished(self, fed_bytes: int) -> None:
        """The parser keeps an unfinished header without saying so: bound what it was fed since it last spoke."""
        if self._begun > 1:
            self._unheard_bytes = 0
        elif self._begun == 1:
            self._unheard_bytes = min(self._unheard_bytes, fed_bytes)
        if self.failure is None and self.phase is not Phase.BETWEEN and self._unheard_bytes > self._header_limit:
            self._fail(431, "header-too-large", f"The header is larger than {self._header_limit} bytes.")

    def _reset(self) -> None:
        self._target = b""
        self._headers: list[Header] = []
        self._header_bytes = 0
        self._body: bytes | bytearray = b""
        self._body_bytes = 0
        self._has_framing = False
        self._version = ""
        self._method = b""

    def _fail(self, status: int, code: str, message: str) -> None:
        if self.failure is None:
            self.failure = Refusal(status, code, message)
            self.phase = Phase.BETWEEN
            self.expects_continue = False
            self._body = b""

    def on_message_begin(self) -> None:
        if self._is_replayed:
            return
        self._reset()
        self._begun += 1
        if self.failure is None:
            self.phase = Phase.HEAD

    def on_url(self, url: bytes) -> None:
        if self._is_replayed:
            return
        self._target += url
        self._header_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_replayed:
            return
        self._header_bytes += len(name) + len(value) + 4
        if self.phase is Phase.HEAD:
            self._headers.append((name.lower(), value))
        elif self._header_bytes > self._header_limit:
            self._fail(431, "header-too-large", f"The trailer is larger than {self._header_limit} bytes.")

    def on_headers_complete(self) -> None:
        if self._is_replayed:
            self._is_replayed = False
            return
        if self.failure is not None:
            return
        self.phase = Phase.BODY
        self._method = self._parser.get_method()
        self._unheard_bytes = 0
        if self._header_bytes > self._header_limit:
            self._fail(431, "header-too-large", f"The header is larger than {self._header_limit} bytes.")
        elif self._parser.should_upgrade() and self._needs_upgrade():
            self._fail(501, "upgrade-unsupported", "This server does not change protocols.")
        else:
            self._is_replayed = self._parser.should_upgrade()
            self._check_framing()

    def _check_framing(self) -> None:
        version = self._version = self._parser.get_http_version()
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
        if self.failure is not None or self._is_replayed:
            return
        self.phase = Phase.BETWEEN
        self.expects_continue = False
        self._unheard_bytes = 0
        keep_alive = self._parser.should_keep_alive()
        self._last_seen = not keep_alive
        self._complete.append(
            WireRequest(
                method=self._method,
                target=self._target,
                http_1_0=self._version == "1.0",
                headers=tuple(self._headers),
                body=bytes(self._body),
                keep_alive=keep_alive,
                has_framing=self._has_framing,
            )
        )
        self._reset()
