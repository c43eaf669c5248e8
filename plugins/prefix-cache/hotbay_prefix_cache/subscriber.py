"""Receives engines' messages over ZeroMQ, in a thread of its own, and gives their frames to one function.

As vLLM has it, who has the lasting address binds: engines connect to ours where `bind` names one, and we connect to each
engine that publishes at an address of its own. A message of such an engine is told with the name under which it was
connected. Nothing that is received ends the thread, whatever the function raises of it, and no socket that fails: it is opened
anew. An address that cannot be bound is tried again, because the version of this package before this one may have it still.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from threading import Event, Lock, Thread
from typing import Any, Final, TypeAlias

from hotbay_sdk import Logger

Receive: TypeAlias = Callable[[str, Sequence[bytes]], None]
"""Takes the name of the engine, empty for who came to our address, and the frames."""

_HIGH_WATER_COUNT: Final = 100_000
"""Messages that wait for this thread; vLLM's own bound at the other end."""
_MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
_POLL_MS: Final = 100
_BURST_COUNT: Final = 256
"""Messages of one engine before the next engine has its turn."""
_JOIN_S: Final = 2.0
_OURS: Final = ""


class Subscriber:
    """Subscribes until it is closed. Its methods may be called from any thread."""

    def __init__(self, receive: Receive, logger: Logger, *, topic: str, bind: str) -> None:
        # Few operators use it, and it costs every start of the package more than all the rest.
        self._zmq: Any = import_module("zmq")
        self._receive = receive
        self._logger = logger
        self._topic = topic.encode()
        self._bind = bind
        self._wanted: dict[str, str] = {}
        self._open_sockets: dict[str, tuple[str, Any]] = {}
        self._failed = False
        self._lock = Lock()
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="kv-events", daemon=True)
        self._thread.start()

    def connect(self, name: str, address: str) -> None:
        """Listen to the engine `name`, which publishes at `tcp://HOST:PORT`, and no more to where it did before."""
        with self._lock:
            self._wanted[name] = address

    def disconnect(self, name: str) -> None:
        """Listen no more to the engine `name`."""
        with self._lock:
            self._wanted.pop(name, None)

    def close(self) -> None:
        """End the thread and its sockets; waits 2 s at most."""
        self._stopped.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        context = self._zmq.Context()
        try:
            while not self._stopped.is_set():
                self._sync(context)
                self._listen()
        finally:
            for _, socket in self._open_sockets.values():
                socket.close(linger=0)
            context.term()

    def _sync(self, context: Any) -> None:
        """Open what is wanted and close what is not."""
        with self._lock:
            wanted = {**self._wanted, **({_OURS: self._bind} if self._bind else {})}
        for name, (address, socket) in list(self._open_sockets.items()):
            if wanted.get(name) != address or socket.closed:
                socket.close(linger=0)
                del self._open_sockets[name]
        for name in wanted.keys() - self._open_sockets.keys():
            socket = self._opened(context, wanted[name], bind=name == _OURS)
            if socket is not None:
                self._open_sockets[name] = (wanted[name], socket)

    def _opened(self, context: Any, address: str, *, bind: bool) -> Any:
        socket = None
        try:
            socket = context.socket(self._zmq.SUB)
            socket.setsockopt(self._zmq.RCVHWM, _HIGH_WATER_COUNT)
            socket.setsockopt(self._zmq.MAXMSGSIZE, _MAX_FRAME_BYTES)
            socket.setsockopt(self._zmq.IPV6, 1)
            socket.setsockopt(self._zmq.SUBSCRIBE, self._topic)
            (socket.bind if bind else socket.connect)(address)
        except self._zmq.ZMQError as error:
            if socket is not None:
                socket.close(linger=0)
            self._logger.debug("KV events: %s cannot be used yet: %s", address, error)
            return None
        return socket

    def _listen(self) -> None:
        poller = self._zmq.Poller()
        names = {}
        for name, (_, socket) in self._open_sockets.items():
            poller.register(socket, self._zmq.POLLIN)
            names[socket] = name
        if not names:
            self._stopped.wait(_POLL_MS / 1000)
            return
        try:
            ready = poller.poll(_POLL_MS)
        except self._zmq.ZMQError as error:
            self._logger.debug("KV events: sockets cannot be waited for, all are opened anew: %s", error)
            for socket in names:
                socket.close(linger=0)
            self._stopped.wait(_POLL_MS / 1000)
            return
        for socket, _ in ready:
            self._drain(names[socket], socket)

    def _drain(self, name: str, socket: Any) -> None:
        """Give on what one engine has sent. A socket that fails is closed, and the next round opens another one."""
        for _ in range(_BURST_COUNT):
            try:
                frames = socket.recv_multipart(self._zmq.NOBLOCK)
            except self._zmq.Again:
                return
            except self._zmq.ZMQError as error:
                self._logger.debug("KV events: the socket of %s fails and is opened anew: %s", name or "ours", error)
                socket.close(linger=0)
                return
            try:
                self._receive(name, frames)
            except Exception:  # named boundary: no message of one engine ends what is heard of all others
                if not self._failed:
                    self._failed = True
                    self._logger.exception("KV events: a message of %s could not be followed", name or "an engine")
