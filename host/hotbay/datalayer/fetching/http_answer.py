"""Reads one HTTP/1.1 answer after the other out of a buffer that the bytes of a connection are written into.

Decides where an answer ends and whether it is whole; sockets, deadlines and what the body means are the caller's.
Only the status and the fields that frame a body are looked at: at thousands of pages a second a parser that calls back
for each field costs as much as all else. What is ambiguous is refused (two lengths, a length beside chunks, an unknown
transfer coding), for a body of uncertain end may hold half a number. Invariants: bytes go to `space()` and are told to
`received`; the buffer is replaced and never resized, because who fills it still holds a view; a body is within
MAX_BODY_BYTES, heads together within MAX_HEAD_BYTES, and so are trailers. What costs time apart from bytes has bounds of its
own: interim heads, trailers, and chunks, which have to carry something. Pure.
"""

import re
from dataclasses import dataclass
from typing import Final

from hotbay.datalayer.fetching.buffers import Buffers
from hotbay.datalayer.pages.text import PageText

__all__ = [
    "CHUNK_BYTES",
    "FREE_CHUNKS",
    "MAX_BODY_BYTES",
    "MAX_HEAD_BYTES",
    "MAX_INTERIM_HEADS",
    "MAX_TRAILERS",
    "Answer",
    "AnswerError",
    "AnswerReader",
]

MAX_BODY_BYTES: Final = 4 << 20
"""Thirty times the page of a busy vLLM; bounds the memory that one endpoint can claim."""

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_INTERIM_HEADS: Final = 16
MAX_TRAILERS: Final = 128
"""Who sends any sends one or two of either."""

FREE_CHUNKS: Final = 2048
CHUNK_BYTES: Final = 128
"""A body may have FREE_CHUNKS, and one more for each so many bytes: a server may send a page line by line, but a chunk costs
3 µs, and four million bytes in chunks of one would be seconds."""

_MAX_CHUNK_HEAD_BYTES: Final = 1024
_LENGTH_DIGITS: Final = 19
_PROTOCOL: Final = b"HTTP/1."

_HEAD_END: Final = b"\r\n\r\n"
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?(?:\r\n|\Z)")
_FIELD: Final = re.compile(
    rb"\r\n(content-length|transfer-encoding|content-encoding|content-type|connection)([ \t]*):[ \t]*([^\r\n]*)",
    re.IGNORECASE,
)
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?\Z", re.DOTALL)
_BODILESS: Final = frozenset((204, 304))


class AnswerError(Exception):
    """The bytes are no whole answer of bounded size. `reason` is a short fixed word, the text says more."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; its body lies in the reader's buffer until the next `begin` or `release`. `encoding` and `content_type` are as the server wrote them, in lower case, empty without.

    `framed`: the body's end was announced, and is not just the end of the connection. `reusable`: another request may
    be sent.
    """

    status: int
    body: PageText
    encoding: bytes
    content_type: bytes
    framed: bool
    reusable: bool


@dataclass(slots=True)
class _Head:
    """What a head says of the body. `length` is None where chunks or the end of the connection say it."""

    status: int
    length: int | None
    chunked: bool
    encoding: bytes
    content_type: bytes
    keeps: bool

    @property
    def framed(self) -> bool:
        return self.chunked or self.length is not None


class AnswerReader:
    """See the module. One answer at a time: `begin`, then bytes, until `received` or `ended` returns the answer."""

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self._buffer: bytearray | None = None
        self._have = self._read = 0
        self.begin()

    @property
    def started(self) -> bool:
        """Whether a byte of the answer is there."""
        return self._have > 0

    def begin(self) -> None:
        """Forget what is there; the next byte is the first of an answer."""
        self.release()
        self._head: _Head | None = None
        self._body_start = self._body_end = 0
        self._interim = self._chunks = self._trailers = self._trailers_start = 0
        self._in_trailers = False

    def release(self) -> None:
        """Give the buffer back: what is in it is lost, an answer's body too."""
        if self._buffer is not None:
            self._buffers.give(self._buffer)
            self._buffer = None
        self._have = self._read = 0

    def space(self) -> memoryview:
        """Where the next bytes belong: at least one byte of room."""
        if self._buffer is None:
            self._buffer = self._buffers.take()
        elif self._have == len(self._buffer):
            self._grow(2 * self._have)
        return memoryview(self._buffer)[self._have :]

    def received(self, count: int) -> Answer | None:
        """So many bytes were written to `space()`; the answer if it is whole now.

        Raises:
            AnswerError: this is no answer, or one that is too large; nothing can be read from the connection any more.
        """
        self._have += count
        if self._have > MAX_BODY_BYTES + MAX_HEAD_BYTES:
            raise _too_large()
        buffer = self._buffer
        assert buffer is not None
        if self._head is None and not self._read_heads(buffer):
            return None
        head = self._head
        assert head is not None
        if head.chunked:
            return self._answer(head, self._read) if self._read_chunks(buffer) else None
        if head.length is None:
            self._body_end = self._have
            return None
        self._body_end = self._body_start + head.length
        return self._answer(head, self._body_end) if self._have >= self._body_end else None

    def ended(self) -> Answer:
        """The connection ended; the answer if that is its end.

        Raises:
            AnswerError: `truncated`, the rest of the answer is missing.
        """
        head = self._head
        if head is None or head.framed:
            raise AnswerError("truncated", "the connection was closed in the middle of the answer")
        return self._answer(head, self._have)

    def _read_heads(self, buffer: bytearray) -> bool:
        """Read the head of the final answer, and those of interim ones before it; False while it is incomplete."""
        while True:
            end = buffer.find(_HEAD_END, self._read, self._have)
            if (self._have if end < 0 else end) > MAX_HEAD_BYTES:
                raise _head_too_large()
            if end < 0:
                begun = bytes(buffer[self._read : min(self._have, self._read + len(_PROTOCOL))])
                if not _PROTOCOL.startswith(begun):
                    raise AnswerError("not_http", f"not an HTTP answer: it starts with {begun!r}")
                return False
            head = _read_head(bytes(buffer[self._read : end]))
            self._read = end + len(_HEAD_END)
            if not 100 <= head.status < 200:
                break
            self._interim += 1
            if self._interim > MAX_INTERIM_HEADS:
                raise AnswerError("too_large", f"more than {MAX_INTERIM_HEADS} interim answers before the answer")
        self._head = head
        self._body_start = self._body_end = self._read
        if head.length is not None:
            self._reserve(self._read + head.length)
        return True

    def _read_chunks(self, buffer: bytearray) -> bool:
        """Move the data of whole chunks together; True when the last one and the trailers are there."""
        view = memoryview(buffer)
        while not self._in_trailers:
            line_end = buffer.find(b"\r\n", self._read, self._have)
            if (self._have if line_end < 0 else line_end) - self._read > _MAX_CHUNK_HEAD_BYTES:
                raise AnswerError("not_http", "a chunk does not begin with its size")
            if line_end < 0:
                return False
            match = _CHUNK.match(buffer, self._read, line_end)
            if match is None:
                raise AnswerError("not_http", "a chunk does not begin with its size")
            size, begin = int(match[1], 16), line_end + 2
            if self._body_end - self._body_start + size > MAX_BODY_BYTES:
                raise _too_large()
            if size == 0:
                self._in_trailers, self._read, self._trailers_start = True, begin, begin
                break
            end = begin + size
            if self._have < end + 2:
                self._reserve(end + 2)
                return False
            if buffer[end : end + 2] != b"\r\n":
                raise AnswerError("not_http", "a chunk is longer than its size")
            view[self._body_end : self._body_end + size] = view[begin:end]
            self._body_end += size
            self._read = end + 2
            self._chunks += 1
            if self._chunks > FREE_CHUNKS + (self._body_end - self._body_start) // CHUNK_BYTES:
                raise AnswerError("too_large", f"the body has {self._chunks} chunks of next to nothing")
        return self._read_trailers(buffer)

    def _read_trailers(self, buffer: bytearray) -> bool:
        while (end := buffer.find(b"\r\n", self._read, self._have)) >= 0:
            is_last, self._read = end == self._read, end + 2
            if is_last:
                return True
            self._trailers += 1
            if self._trailers > MAX_TRAILERS:
                raise AnswerError("too_large", f"more than {MAX_TRAILERS} trailers follow the body")
        if self._have - self._trailers_start > MAX_HEAD_BYTES:
            raise AnswerError("too_large", f"the trailers of the answer are larger than {MAX_HEAD_BYTES} bytes")
        return False

    def _reserve(self, size: int) -> None:
        if self._buffer is not None and size > len(self._buffer):
            self._grow(size)

    def _grow(self, size: int) -> None:
        buffer = self._buffer
        assert buffer is not None
        grown = bytearray(size)
        grown[: self._have] = memoryview(buffer)[: self._have]
        self._buffer = grown

    def _answer(self, head: _Head, message_end: int) -> Answer:
        if self._body_end - self._body_start > MAX_BODY_BYTES:
            raise _too_large()
        # A head ends with a line feed, which is the one that the text has to have in front.
        assert self._buffer is not None
        body = PageText(self._buffer, self._body_start, self._body_end)
        # Bytes beyond the answer are of another one, that nobody asked for.
        reusable = head.keeps and head.framed and self._have == message_end
        return Answer(head.status, body, head.encoding, head.content_type, head.framed, reusable)


def _read_head(head: bytes) -> _Head:
    status = _STATUS.match(head)
    if status is None or b"\0" in head:
        raise AnswerError("not_http", f"not an HTTP answer: it starts with {head[:40]!r}")
    found: dict[bytes, bytes] = {}
    for name, gap, value in _FIELD.findall(head):
        name, value = name.lower(), value.strip().lower()
        if gap or (name == b"content-length" and found.get(name, value) != value):
            raise AnswerError("not_http", f"the field {name.decode()} is not clear")
        found[name] = b", ".join((found[name], value)) if name in found and name != b"content-length" else value
    code = int(status[2])
    length = _length(found.get(b"content-length"))
    coding = found.get(b"transfer-encoding")
    if coding not in (None, b"chunked") or (coding is not None and length is not None):
        raise AnswerError("not_http", "the end of the body is not clear: the transfer coding has to be chunked, alone")
    if code in _BODILESS:
        length, coding = 0, None
    tokens = {token.strip() for token in found.get(b"connection", b"").split(b",")}
    keeps = b"keep-alive" in tokens if status[1] == b"0" else b"close" not in tokens
    return _Head(
        code, length, coding is not None, found.get(b"content-encoding", b""), found.get(b"content-type", b""), keeps
    )


def _length(text: bytes | None) -> int | None:
    if text is None:
        return None
    if not text.isdigit():
        raise AnswerError("not_http", f"the content-length is not a number: {text[:40]!r}")
    length = int(text) if len(text) <= _LENGTH_DIGITS else MAX_BODY_BYTES + 1
    if length > MAX_BODY_BYTES:
        raise _too_large()
    return length


def _too_large() -> AnswerError:
    return AnswerError("too_large", f"the answer is larger than {MAX_BODY_BYTES} bytes")


def _head_too_large() -> AnswerError:
    return AnswerError("too_large", f"the head of the answer is larger than {MAX_HEAD_BYTES} bytes")
