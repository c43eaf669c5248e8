"""The admin interface: HTTP and JSON on a Unix socket, for the commands of the operator and for nobody else.

`run` accepts until it is cancelled. A connection whose user is neither the host's nor root is told so and closed. Every
call is bounded in size and time, a fault in one ends no other, at most `connections` are open at once, and a client
that does not take what it asked for is let go. What the host is asked to change is logged with the name of the user.
The socket's file is there exactly while calls are answered.
"""

import json
import logging
import os
import pwd
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread
import orjson

from hotbay.errors import CapacityError, HostError, taking_over
from hotbay.gateway.admin_calls import CALLS, ENDPOINT_CALLS, INSPECT_CALLS, lines_of
from hotbay.gateway.admin_errors import bad_request, error_page, internal_page, status_of
from hotbay.gateway.admin_operations import AdminOperations, EndpointOperations, InspectOperations, Page
from hotbay.gateway.admin_peer import AdminPeer, PeerGoneError
from hotbay.gateway.admin_routes import AdminRoute, Arguments, read_call
from hotbay.gateway.admin_socket import BoundSocket, bind_private, peer_uid
from hotbay.gateway.answers import Answer
from hotbay.gateway.request_reader import RequestReader, WireRequest
from hotbay.observe.background import Background

__all__ = ["AdminLimits", "AdminServer"]

logger = logging.getLogger(__name__)

_STATUS_INTERVAL_MS: Final = 1000
# After an accept that failed for want of descriptors: it fails again at once until one is free.
_ACCEPT_PAUSE_S: Final = 0.2
_CLOSE_S: Final = 2.0
# A connection that is closed before its request was read loses the answer: it may send one, soon.
_REFUSED_READ_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class AdminLimits:
    """Bounds of the admin socket. A body names a few plugins at most; a whole minute lets a person type with a tool.

    `read_s` is for a whole request, and for the time between two.
    """

    header_bytes: int = 16 * 1024
    body_bytes: int = 1024 * 1024
    connections: int = 64
    read_s: float = 60.0
    write_s: float = 10.0


class AdminServer:
    """See the module. One `run` at a time. Without `endpoints` or `inspection` the calls of those are answered as unavailable.

    While `is_frozen` says so, whatever would change something is refused: it would be lost with this host.
    """

    def __init__(
        self,
        operations: AdminOperations,
        limits: AdminLimits | None = None,
        *,
        endpoints: EndpointOperations | None = None,
        inspection: InspectOperations | None = None,
        background: Background | None = None,
        is_frozen: Callable[[], bool] = lambda: False,
    ) -> None:
        self._operations = operations
        self._endpoints = endpoints
        self._inspection = inspection
        self._is_frozen = is_frozen
        self._limits = limits or AdminLimits()
        self._background = background or Background()
        self._names: dict[int, str] = {}
        self._open = 0

    async def run(self, path: Path, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve at `path` until cancelled; tells `task_status` when a client can connect. Raises `InputError`."""
        bound = await anyio.to_thread.run_sync(bind_private, path)
        try:
            logger.info("admin_listens path=%s", path)
            task_status.started()
            await self._background.keep("admin socket", partial(self._accept, bound))
        finally:
            bound.close()

    async def _accept(self, bound: BoundSocket) -> None:
        async with anyio.create_task_group() as group:
            while True:
                await anyio.wait_readable(bound.listener)
                try:
                    connection, _ = bound.listener.accept()
                except BlockingIOError:
                    continue
                except OSError as error:
                    logger.warning("admin_accept_failed: %s", error)
                    await anyio.sleep(_ACCEPT_PAUSE_S)
                    continue
                connection.setblocking(False)
                group.start_soon(self._background.guard, "admin client", partial(self._serve, connection))

    async def _serve(self, connection: socket.socket) -> None:
        limits = self._limits
        reader = RequestReader(limits.header_bytes, limits.body_bytes)
        self._open += 1
        try:
            uid = peer_uid(connection)
            refusal = self._refusal(uid)
            read_s = limits.read_s if refusal is None else _REFUSED_READ_S
            peer = AdminPeer(connection, reader, read_s=read_s, write_s=limits.write_s)
            await self._turns(peer, refusal, uid)
        except PeerGoneError as error:
            logger.debug("admin_client_gone: %s", error)
        finally:
            self._open -= 1
            connection.close()

    def _refusal(self, uid: int) -> HostError | None:
        """Why this connection gets nothing but that, or None."""
        if uid not in (0, os.geteuid()):
            logger.warning("admin_refused uid=%d", uid)
            message = "only the host's user and root may use this socket"
            return HostError("FORBIDDEN", message, hint="run the command as the host's user, or as root")
        if self._open > self._limits.connections:
            hint = "end some of them, such as `hotbay events`, or repeat it in a few seconds"
            return CapacityError("UNAVAILABLE", "too many clients are connected to this socket", hint=hint)
        return None

    async def _turns(self, peer: AdminPeer, refusal: HostError | None, uid: int) -> None:
        while (request := await peer.request()) is not None:
            if refusal is not None:
                await peer.answer(request, _json(status_of(refusal), error_page(refusal)))
                return
            if not await self._answer(peer, request, uid) or not request.keep_alive:
                return
        if peer.failure is not None:
            page = error_page(bad_request(peer.failure.message))
            await peer.refuse(_json(peer.failure.status, page))

    async def _answer(self, peer: AdminPeer, request: WireRequest, uid: int) -> bool:
        """Answer one request; False when the connection has to end with it."""
        lines: AsyncIterator[Page] | None = None
        try:
            route, arguments = read_call(request.method, request.target, request.body)
            lines = await self._lines_of(route, arguments)
            if lines is None:
                answer = _json(200, await self._call(route, arguments, uid))
        except HostError as error:
            answer = _json(status_of(error), error_page(error))
        except Exception:
            # The boundary of what a command asks: the host goes on.
            logger.exception("admin_failed target=%s", request.target[:100])
            answer = _json(500, internal_page())
        if lines is not None:
            await self._send_lines(peer, lines)
            return False
        await peer.answer(request, answer)
        return True

    async def _call(self, route: AdminRoute, arguments: Arguments, uid: int) -> Page:
        who = await self._name(uid)
        if route.method != "GET":
            logger.info("admin_call operation=%s who=%s arguments=%s", route.name, who, arguments)
            if self._is_frozen():
                raise taking_over()
        if route.name in ENDPOINT_CALLS:
            return await ENDPOINT_CALLS[route.name](self._endpoint_operations, arguments, who)
        if route.name in INSPECT_CALLS:
            if self._inspection is None:
                hint = "ask a host that serves requests"
                raise CapacityError("UNAVAILABLE", "this host decides nothing", hint=hint)
            return await INSPECT_CALLS[route.name](self._inspection, arguments)
        return await CALLS[route.name](self._operations, arguments, who)

    @property
    def _endpoint_operations(self) -> EndpointOperations:
        if self._endpoints is None:
            raise CapacityError("UNAVAILABLE", "this host knows no endpoints", hint="ask a host that serves requests")
        return self._endpoints

    async def _lines_of(self, route: AdminRoute, arguments: Arguments) -> AsyncIterator[Page] | None:
        """The stream that a route asks for, or None. What can be refused is refused here, before an answer begins."""
        pages = {"status_stream": self._operations.status, "endpoints_stream": self._endpoint_page}.get(route.name)
        if pages is not None:
            interval_ms = arguments.optional_count("interval_ms") or _STATUS_INTERVAL_MS
            return _again(pages, await pages(), interval_ms / 1000)
        if route.name == "events":
            return self._operations.events()
        if route.name == "logs" and arguments.flag("follow"):
            plugin = arguments.text("plugin")
            return self._followed(plugin, await self._operations.logs(plugin, lines_of(arguments)))
        return None

    async def _endpoint_page(self) -> Page:
        return await self._endpoint_operations.endpoints()

    async def _followed(self, plugin: str, first: Page) -> AsyncIterator[Page]:
        lines = first.get("lines")
        for line in lines if isinstance(lines, list | tuple) else ():
            yield line
        following = self._operations.follow(plugin)
        try:
            async for line in following:
                yield line
        finally:
            await _end(following)

    async def _send_lines(self, peer: AdminPeer, lines: AsyncIterator[Page]) -> None:
        """Send until the stream ends, the client leaves or does not take a line in time."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_watch, peer, group.cancel_scope)
                await self._pump(peer, lines)
                group.cancel_scope.cancel()
        finally:
            await _end(lines)

    async def _pump(self, peer: AdminPeer, lines: AsyncIterator[Page]) -> None:
        try:
            await peer.begin_lines()
            async for page in lines:
                await peer.line(_dumps(page))
        except PeerGoneError as error:
            logger.debug("admin_client_gone: %s", error)
        except HostError as error:
            await _last_line(peer, error_page(error))
        except Exception:
            # The boundary of what a command asks: the host goes on.
            logger.exception("admin_stream_failed")
            await _last_line(peer, internal_page())

    async def _name(self, uid: int) -> str:
        if uid not in self._names:
            # Users may come from a directory server.
            self._names[uid] = await anyio.to_thread.run_sync(_user_name, uid)
        return self._names[uid]


async def _again(page: Callable[[], Awaitable[Page]], first: Page, interval_s: float) -> AsyncIterator[Page]:
    yield first
    while True:
        await anyio.sleep(interval_s)
        yield await page()


async def _watch(peer: AdminPeer, scope: anyio.CancelScope) -> None:
    """Cancel when the client has left."""
    with suppress(PeerGoneError):
        await peer.left()
    scope.cancel()


async def _last_line(peer: AdminPeer, page: Page) -> None:
    with suppress(PeerGoneError):
        await peer.line(_dumps(page))


async def _end(stream: AsyncIterator[object]) -> None:
    """Let a generator run its clean-up now, and not when it is collected."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await close()


def _json(status: int, page: Page) -> Answer:
    return Answer(status, _dumps(page))


def _dumps(page: Page) -> bytes:
    try:
        return orjson.dumps(page, default=str, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        # Names of files can be no Unicode, and integers can be longer than 64 bits.
        return json.dumps(page, default=str).encode()


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
