"""Answers that the gateway makes itself: JSON or text with a head, errors in the shape of the OpenAI API.

Pure. Every error has a stable `code`; those that a client may retry, and those of the scheduler and its plugins, carry it in
`x-hotbay-reason` and in the reference's `x-llm-d-request-dropped-reason` as well. No text of a request ever stands in an answer.
"""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

import orjson

__all__ = ["Answer", "Refusal", "json_answer", "serialise", "typed_refusal"]

_Header = tuple[bytes, bytes]
_NOT_A_WORD = re.compile(r"[^A-Za-z0-9._-]")
_RETRIABLE = frozenset({429, 500, 502, 503, 504})
_RETRY_LATER = frozenset({429, 503})
_TYPES = {404: "not_found_error", 408: "timeout_error", 429: "rate_limit_error"}
# The reference's names of the statuses that its scheduler and plugins answer with.
_CODES: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    412: "PreconditionFailed",
    429: "ResourceExhausted",
    500: "Internal",
    503: "ServiceUnavailable",
}
_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


class Answer(NamedTuple):
    """A whole response, before it is framed."""

    status: int
    body: bytes
    content_type: bytes = b"application/json"
    headers: Sequence[_Header] = ()


class Refusal(NamedTuple):
    """Why a request is not served; `code` is what machines read, `message` what people read."""

    status: int
    code: str
    message: str
    headers: Sequence[_Header] = ()
    is_typed: bool = False

    def also(self, headers: Mapping[bytes, bytes]) -> "Refusal":
        """The same with these headers, too."""
        return self._replace(headers=[*self.headers, *headers.items()]) if headers else self

    def answer(self) -> Answer:
        """The error as the OpenAI API shapes it."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        error = {"message": self.message, "type": kind, "param": None, "code": self.code}
        headers = list(self.headers)
        if self.status in _RETRIABLE or self.is_typed:
            # A router may take its reason from a plugin: nothing in it may end the header.
            reason = _NOT_A_WORD.sub("_", self.code).encode()
            headers += [(b"x-hotbay-reason", reason), (b"x-llm-d-request-dropped-reason", reason)]
        if self.status in _RETRY_LATER:
            headers.append((b"retry-after", b"1"))
        return Answer(self.status, orjson.dumps({"error": error}), headers=headers)


def typed_refusal(status: int, reason: str, message: str) -> Refusal:
    """A refusal of the scheduler or of a plugin, worded as the reference words its own."""
    code = _CODES.get(status)
    return Refusal(status, reason, message if code is None else f"inference error: {code} - {message}", is_typed=True)


def json_answer(status: int, value: object, headers: Sequence[_Header] = ()) -> Answer:
    """An answer whose body is `value` as JSON."""
    return Answer(status, orjson.dumps(value), headers=headers)


def serialise(answer: Answer, *, keep_alive: bool, http_1_0: bool, head_only: bool, request_id: str) -> bytes:
    """The bytes of an answer. `head_only` leaves the body out but not its length, as HEAD wants it."""
    parts = [
        _STATUS_LINES.get(answer.status) or b"HTTP/1.1 %d Status\r\n" % answer.status,
        b"content-type: %b\r\ncontent-length: %d\r\n" % (answer.content_type, len(answer.body)),
        b"x-request-id: %b\r\n" % request_id.encode() if request_id else b"",
        *(b"%b: %b\r\n" % header for header in answer.headers),
    ]
    if not keep_alive:
        parts.append(b"connection: close\r\n")
    elif http_1_0:
        parts.append(b"connection: keep-alive\r\n")
    parts.append(b"\r\n")
    if not head_only:
        parts.append(answer.body)
    return b"".join(parts)
