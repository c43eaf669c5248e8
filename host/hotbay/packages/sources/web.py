"""Requests to servers that nobody here controls: bounded in time, bytes and redirects, with errors of the fault tree.

Every step has its own limit (connecting, each wait for bytes), and a document as a whole another one; the total of a
blob is for who reads it. Bodies are taken as they are sent: compression is not asked for and is refused, because ranges,
lengths and limits would count other bytes. Nothing of the environment counts: no proxy, no netrc, no certificate
that was not named. Cookies are not kept. Secrets go to the server that they are for, over channels where nobody reads
along, and not on to another one that it redirects to. Connections are not limited in number: a
stalled answer never makes another request wait.
"""

import ssl
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, cast

import anyio
import httpx

from hotbay.errors import InputError, PackageError, Place, Problem, printable
from hotbay.packages.sources.addresses import origin_of, redirect_target, shown
from hotbay.packages.sources.credentials import Credentials
from hotbay.packages.sources.faults import EXCERPT_CHARACTERS, NO_ACCESS, fetch_failed, translated
from hotbay.packages.sources.headers import Challenge, parse_challenges

_REDIRECTS: Final = (301, 302, 303, 307, 308)
# What passes by itself: time-outs, too early, too many requests; and every 5xx.
_PASSING: Final = (408, 425, 429)
_IDLE_COUNT: Final = 8
_IDLE_S: Final = 30.0

__all__ = ["Access", "Answer", "Body", "Document", "Limits", "StaticAccess", "WebClient", "refused"]

Body = Callable[[], AsyncIterable[bytes]]
"""Makes the body of a request, again for each attempt."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one client. `stall_s` is the longest wait for the next bytes either way, `document_s` for all of a document,
    `scan_s` for all that a look takes.
    """

    connect_s: float = 10.0
    stall_s: float = 30.0
    document_s: float = 60.0
    scan_s: float = 300.0
    redirect_count: int = 5


@dataclass(frozen=True, slots=True)
class Document:
    """An answer that was read whole."""

    url: str
    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer whose body is still to come: `chunks` raises PackageError FETCH_FAILED when it breaks off."""

    url: str
    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Access(Protocol):
    """Lets requests in to one server. Calls may overlap."""

    async def header(self) -> str | None:
        """Value of `Authorization` for the next request."""

    async def renew(self, used: str | None, challenges: Sequence[Challenge], client: "WebClient") -> bool:
        """The server did not accept `used`; whether another `header` may do better. May ask other servers."""


class StaticAccess:
    """User and password, or a token, with every request."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def header(self) -> str | None:
        return await self._credentials.bearer() or await self._credentials.basic()

    async def renew(self, used: str | None, challenges: Sequence[Challenge], client: "WebClient") -> bool:
        return used != await self.header()


class WebClient:
    """Requests to one server, and to those that it redirects to. For one event loop; calls may overlap."""

    def __init__(
        self,
        url: str,
        access: Access,
        *,
        ca_file: Path | None = None,
        limits: Limits | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._origin = origin_of(url)
        self._access = access
        pool = httpx.Limits(max_connections=None, max_keepalive_connections=_IDLE_COUNT, keepalive_expiry=_IDLE_S)
        self._client = httpx.AsyncClient(
            transport=transport or httpx.AsyncHTTPTransport(verify=_tls_context(ca_file), limits=pool, trust_env=False),
            trust_env=False,
            follow_redirects=False,
            headers={"Accept-Encoding": "identity", "User-Agent": "hotbay"},
            timeout=httpx.Timeout(self.limits.stall_s, connect=self.limits.connect_s, pool=None),
        )

    async def close(self) -> None:
        """Idempotent."""
        await self._client.aclose()

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        body: Body | None = None,
        anonymous: bool = False,
    ) -> AsyncIterator[Answer]:
        """The answer, whatever its status, after redirects (of GET and HEAD). `anonymous` sends no `Authorization`
        but one among `headers`, which then goes nowhere else: redirects are not followed.

        Raises PackageError FETCH_FAILED, on entering or while its chunks are read.
        """
        response = await self._answered(method, url, dict(headers or {}), body=body, anonymous=anonymous)
        try:
            async with aclosing(_chunks(response)) as chunks:
                yield Answer(str(response.url), response.status_code, response.headers, chunks)
        finally:
            await response.aclose()

    async def read(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        limit_bytes: int,
        method: str = "GET",
        body: Body | None = None,
        anonymous: bool = False,
        total_s: float | None = None,
    ) -> Document:
        """The whole answer, whatever its status, within `total_s` or else the limit for documents.

        Raises PackageError FETCH_FAILED, also for an answer that is longer.
        """
        total_s = self.limits.document_s if total_s is None else total_s
        try:
            with anyio.fail_after(total_s):
                async with self.open(method, url, headers, body=body, anonymous=anonymous) as answer:
                    content = b"" if method == "HEAD" else await _content(answer, limit_bytes)
                    return Document(answer.url, answer.status, answer.headers, content)
        except TimeoutError as error:
            message = f"{shown(url)}: no whole answer within {total_s:g} s"
            raise fetch_failed(message, url=url, retryable=True) from error

    async def _answered(
        self, method: str, url: str, headers: dict[str, str], *, body: Body | None, anonymous: bool
    ) -> httpx.Response:
        renewed, redirects = False, 0
        while True:
            own = not anonymous and origin_of(url) == self._origin
            authorization = await self._access.header() if own else None
            given = headers | ({"Authorization": authorization} if authorization else {})
            response = await self._sent(method, url, given, body)
            try:
                if own and response.status_code == 401 and not renewed:
                    challenges = parse_challenges(response.headers.get_list("www-authenticate"))
                    renewed = await self._access.renew(authorization, challenges, self)
                    if renewed:
                        await response.aclose()
                        continue
                location = response.headers.get("location")
                follows = method in ("GET", "HEAD") and not anonymous
                if not follows or response.status_code not in _REDIRECTS or location is None:
                    return response
                redirects += 1
                url = self._next(url, location, redirects)
                await response.aclose()
            except BaseException:
                await response.aclose()
                raise

    async def _sent(self, method: str, url: str, headers: dict[str, str], body: Body | None) -> httpx.Response:
        with translated(url):
            request = self._client.build_request(method, url, headers=headers, content=body() if body else None)
            response = await self._client.send(request, stream=True)
        self._client.cookies.clear()
        return response

    def _next(self, url: str, location: str, redirects: int) -> str:
        if redirects > self.limits.redirect_count:
            message = f"{shown(url)}: more than {self.limits.redirect_count} redirects"
            raise fetch_failed(message, url=url, retryable=False, hint="Give the address that it leads to.")
        try:
            return redirect_target(url, location)
        except ValueError as error:
            message = f"{shown(url)}: a redirect is not followed: {error}"
            raise fetch_failed(message, url=url, retryable=False) from error


def refused(answer: Answer | Document) -> PackageError:
    """The error for a status that does not help; says what the server wrote, as far as it was read."""
    status = answer.status
    text = ""
    if isinstance(answer, Document):
        text = " ".join(printable(answer.content[: EXCERPT_CHARACTERS * 4].decode(errors="replace")).split())
    message = f"{shown(answer.url)}: HTTP {status}{f': {text[:EXCERPT_CHARACTERS]}' if text else ''}"
    hint = "Correct the credentials." if status in NO_ACCESS else ""
    return fetch_failed(
        message, url=answer.url, retryable=status >= 500 or status in _PASSING, hint=hint, status=status
    )


async def _content(answer: Answer, limit_bytes: int) -> bytes:
    content = bytearray()
    async for chunk in answer.chunks:
        content += chunk
        if len(content) > limit_bytes:
            message = f"{shown(answer.url)}: more than {limit_bytes} bytes"
            raise fetch_failed(message, url=answer.url, retryable=False)
    return bytes(content)


async def _chunks(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    url = str(response.url)
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        message = f"{shown(url)}: the answer is compressed ({printable(encoding)[:40]}), which was not asked for"
        raise fetch_failed(message, url=url, retryable=False)
    # It is declared as less than it is: left alone half-way, it would be closed by nobody but the garbage collector.
    async with aclosing(cast(AsyncGenerator[bytes, None], response.aiter_raw())) as raw:
        with translated(url):
            async for chunk in raw:
                yield chunk


def _tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """The system's authorities, or only those of `ca_file`. Raises InputError CONFIG_INVALID for an unusable file."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        # An `SSLError` is one, too: a file without a certificate in it.
        message = f"cannot be used as ca_file: {error.strerror or error}"
        hint = "Give a file of certificates in PEM form."
        raise InputError([Problem("CONFIG_INVALID", message, Place(str(ca_file)), hint=hint)]) from error
