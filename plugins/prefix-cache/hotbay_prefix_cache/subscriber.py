"""Receives engines' messages over ZeroMQ, in a thread of its own, and gives their frames to one function.

As vLLM has it, who has the lasting address binds: engines connect to ours where `bind` names one, and we connect to each
engine that publishes at an address of its own. A message of such an engine is told with the name under which it was
connected. Nothing that is received ends the thread; an address that cannot be bound is tried again, because the version of
this package before this one may have it still.
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
        open_sockets: dict[str, tuple[str, Any]] = {}
        try:
            while not self._stopped.is_set():
                self._sync(context, open_sockets)
                self._listen(open_sockets)
        finally:
            for _, socket in open_sockets.values():
                socket.close(linger=0)
            context.term()

    def _sync(self, context: Any, open_sockets: dict[str, tuple[str, Any]]) -> None:
        """Open what is wanted and close what is not."""
        with self._lock:
            wanted = {**self._wanted, **({_OURS: self._bind} if self._bind else {})}
        for name, (address, socket) in list(open_sockets.items()):
            if wanted.get(name) != address:
                socket.close(linger=0)
                del open_sockets[name]
        for name in wanted.keys() - open_sockets.keys():
            socket = self._opened(context, wanted[name], bind=name == _OURS)
            if socket is not None:
                open_sockets[name] = (wanted[name], socket)

    def _opened(self, context: Any, address: str, *, bind: bool) -> Any:
        socket = context.socket(self._zmq.SUB)
        try:
            socket.setsockopt(self._zmq.RCVHWM, _HIGH_WATER_COUNT)
            socket.setsockopt(self._zmq.MAXMSGSIZE, _MAX_FRAME_BYTES)
            socket.setsockopt(self._zmq.IPV6, 1)
            socket.setsockopt(self._zmq.SUBSCRIBE, self._topic)
            (socket.bind if bind else socket.connect)(address)
        except self._zmq.ZMQError as error:
            socket.close(linger=0)
            self._logger.debug("KV events: %s cannot be used yet: %s", address, error)
            return None
        return socket

    def _listen(self, open_sockets: dict[str, tuple[str, Any]]) -> None:
        poller = self._zmq.Poller()
        names = {}
        for name, (_, socket) in open_sockets.items():
            poller.register(socket, self._zmq.POLLIN)
            names[socket] = name
        if not names:
            self._stopped.wait(_POLL_MS / 1000)
            return
        for socket, _ in poller.poll(_POLL_MS):
            for _ in range(_BURST_COUNT):
                try:
                    frames = socket.recv_multipart(self._zmq.NOBLOCK)
                except self._zmq.Again:
                    break
                self._receive(names[socket], frames)
