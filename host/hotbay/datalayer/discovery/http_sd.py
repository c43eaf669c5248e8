"""A discovery that asks a web server in the form of Prometheus's HTTP service discovery.

A GET every interval, with the ETag of the document that was last taken over whole: an answer 304 changes nothing. Whatever
is no 200 with a whole document of bounded size keeps what was there, and the problem is told; so does a document that
cannot be read, and a refused target in it keeps its last good form. The first sync is the first document; a run that does
not get it fails. Redirects are refused: who configured an address has to know whom it asks. An empty list is a clear
answer and empties the feed.

Files of certificates are followed, and secrets are read from their file for each request. A secret is sent to the configured
address and to no other, and stands in no message.
"""

import ssl
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx

from hotbay.config.discovery_parameters import HttpSdDiscovery
from hotbay.datalayer.discovery.endpoint_documents import with_last_good
from hotbay.datalayer.discovery.feed import KEPT, discovery_failed
from hotbay.datalayer.discovery.notifier import DiscoveryNotifier
from hotbay.datalayer.discovery.service_documents import read_service_document
from hotbay.datalayer.fetching.credentials import authorization
from hotbay.datalayer.fetching.tls import ClientTls
from hotbay.errors import CapacityError, InputError, Problem, printable

__all__ = ["MAX_BODY_BYTES", "HttpSdEndpoints"]

MAX_BODY_BYTES: Final = 4 << 20
"""Holds as many targets as a feed may have, at 400 bytes each."""
_MESSAGE_CHARACTERS: Final = 300
_WHO: Final = "see whether `authorization` or `basicAuth` is what the server knows"
_STAYS: Final = "what it last named stays in force, and it is asked again"


class HttpSdEndpoints:
    """An `EndpointDiscovery` of a document on a web server; relative paths of `tls` count from `directory`."""

    def __init__(self, name: str, parameters: HttpSdDiscovery, directory: Path) -> None:
        self.name = name
        self.ready = anyio.Event()
        self._parameters = parameters
        self._directory = directory
        self._shown = _shown(parameters.url)
        self._etag = ""
        self._problems: tuple[Problem, ...] = ()
        self._warnings: tuple[Problem, ...] = ()

    async def check(self) -> None:
        """Raises `InputError` when a certificate or a secret cannot be used."""
        await anyio.to_thread.run_sync(self._tls)
        await self._authorization()

    async def run(self, notifier: DiscoveryNotifier) -> None:
        """Ask, tell, wait, until cancelled. Raises `HostError` while there has been no document."""
        tls = await anyio.to_thread.run_sync(self._tls)
        while True:
            # Anew when certificates changed; and after a failure, whatever a connection was left in.
            context = tls.context if tls is not None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            async with self._client(context) as client:
                while True:
                    problem = await self._look(client, notifier)
                    self.ready.set()
                    told = (*([problem] if problem else ()), *(tls.problems if tls is not None else ()))
                    notifier.report((*told, *self._problems), self._warnings)
                    await anyio.sleep(self._parameters.interval_s)
                    if tls is not None:
                        await tls.look()
                    if problem or (tls is not None and tls.context is not context):
                        break

    async def _look(self, client: httpx.AsyncClient, notifier: DiscoveryNotifier) -> Problem | None:
        """Ask once, and tell what is new. Returns why what was there stays; before the first document that is raised."""
        try:
            with anyio.fail_after(self._parameters.timeout_s):
                body, etag = await self._fetch(client)
            if body is None:
                return None
            # In a thread: ten thousand targets take longer than a request may wait.
            read = await anyio.to_thread.run_sync(
                partial(read_service_document, body, namespace=self._parameters.namespace, source=self._shown)
            )
        except TimeoutError as error:
            failed = discovery_failed(f"{self._shown}: no whole answer within {self._parameters.timeout_s:g} s")
            if not self.ready.is_set():
                raise failed from error
            return Problem(failed.code, f"{self.name}: {failed.message}", hint=_STAYS)
        except CapacityError as error:
            if not self.ready.is_set():
                raise
            hint = _STAYS if error.hint == KEPT else f"{error.hint}; {_STAYS}"
            return Problem(error.code, f"{self.name}: {error.message}", hint=hint)
        except InputError as error:
            if not self.ready.is_set():
                raise
            return error.problems[0]
        last_good = notifier.held if self.ready.is_set() else notifier.earlier
        notifier.replace(with_last_good(read, last_good), is_all=True)
        self._problems, self._warnings, self._etag = read.problems, read.warnings, etag
        return None

    async def _fetch(self, client: httpx.AsyncClient) -> tuple[bytes | None, str]:
        """The document and its ETag, None when it is the one that was last taken over.

        Raises:
            CapacityError: there is none.
            InputError: a secret cannot be used; nobody was asked.
        """
        headers = {"If-None-Match": self._etag} if self._etag else {}
        value = await self._authorization()
        if value:
            headers["Authorization"] = value
        try:
            async with client.stream("GET", self._parameters.url, headers=headers) as response:
                if response.status_code == 304 and self._etag:
                    return None, self._etag
                self._refuse(response)
                return await self._body(response), response.headers.get("etag", "")
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            text = printable(str(error) or type(error).__name__)[:_MESSAGE_CHARACTERS]
            raise discovery_failed(f"{self._shown}: {text}") from error

    def _refuse(self, response: httpx.Response) -> None:
        status = response.status_code
        if 300 <= status < 400 and "location" in response.headers:
            target = printable(_shown(response.headers["location"]))[:_MESSAGE_CHARACTERS]
            raise discovery_failed(f"{self._shown}: redirects are not followed: configure {target} if that is meant")
        if status != 200:
            hint = _WHO if status in (401, 403) else ""
            raise discovery_failed(f"{self._shown}: expected 200, found {status}", hint=hint)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise discovery_failed(f"{self._shown}: sent in a content encoding that was not asked for")

    async def _body(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise discovery_failed(f"{self._shown}: expected at most {MAX_BODY_BYTES} bytes, found more")
        return bytes(body)

    async def _authorization(self) -> str:
        """What the request shows, "" for nothing. Raises `InputError`."""
        credentials = self._parameters.credentials
        if credentials is None:
            return ""
        return await anyio.to_thread.run_sync(authorization, credentials, self._directory)

    def _tls(self) -> ClientTls | None:
        """None over http, where a context is never used: nothing leads away from the address. Raises `InputError`."""
        is_secure = self._parameters.url.startswith("https:")
        return ClientTls(self._parameters.tls, self._directory) if is_secure else None

    def _client(self, context: ssl.SSLContext) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(verify=context, trust_env=False),
            trust_env=False,
            follow_redirects=False,
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "hotbay",
                # As Prometheus does: a server can tell by it how fresh its answer has to be.
                "X-Prometheus-Refresh-Interval-Seconds": f"{self._parameters.interval_s:g}",
            },
            timeout=self._parameters.timeout_s,
        )


def _shown(url: str) -> str:
    """What of a URL stands in problems, which everybody sees who sees the status: its query or user may be a secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "what it names"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if host else parts.path
