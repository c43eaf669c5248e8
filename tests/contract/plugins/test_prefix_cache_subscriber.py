"""How engines' messages get to the precise producer: real sockets of the library that its package brings, at both ends."""

import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from threading import Condition
from typing import Any

import pytest
from hotbay.packages.layout import blob_path, read_layout
from hotbay_prefix_cache.subscriber import Subscriber
from hotbay_sdk import Logger

LAYOUT = Path(__file__).resolve().parents[3] / "build" / "packages" / "prefix-cache"
DEADLINE_S = 20.0
FRAMES = [b"kv@default/a@m", b"\0" * 8, b"batch"]

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def zmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """pyzmq out of the packed plugin: it is no dependency of anything else here."""
    folder = tmp_path_factory.mktemp("pyzmq")
    (manifest,) = read_layout(LAYOUT)
    (wheel,) = [blob for blob in manifest.blobs if blob.name.startswith("pyzmq-")]
    with zipfile.ZipFile(blob_path(LAYOUT, wheel.digest)) as archive:
        archive.extractall(folder)
    sys.path.insert(0, str(folder))
    try:
        yield import_module("zmq")
    finally:
        sys.path.remove(str(folder))


class Received:
    """What a subscriber gave, and a way to wait for it."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, list[bytes]]] = []
        self._changed = Condition()

    def __call__(self, name: str, frames: Sequence[bytes]) -> None:
        with self._changed:
            self.messages.append((name, list(frames)))
            self._changed.notify_all()

    def wait(self, count: int) -> list[tuple[str, list[bytes]]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= count, DEADLINE_S), self.messages
            return self.messages


class Publisher:
    """An engine's end. An XPUB is a PUB that says who subscribes, so that nothing is sent before somebody hears it."""

    def __init__(self, zmq: Any) -> None:
        self._zmq = zmq
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.XPUB)
        self.socket.setsockopt(zmq.RCVTIMEO, int(DEADLINE_S * 1000))
        # Also of a subscription that it has already: of who took another one's place.
        self.socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.socket.setsockopt(zmq.LINGER, 0)

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self._context.term()

    def bind(self) -> str:
        self.socket.bind("tcp://127.0.0.1:0")
        address: bytes = self.socket.getsockopt(self._zmq.LAST_ENDPOINT)
        return address.rstrip(b"\0").decode()

    def news(self) -> bytes:
        """The next subscription, or its end."""
        told: bytes = self.socket.recv()
        return told

    def send(self, frames: Sequence[bytes] = FRAMES) -> None:
        self.socket.send_multipart(list(frames))


@pytest.fixture
def received() -> Received:
    return Received()


def subscriber(received: Received, *, bind: str = "", topic: str = "kv@") -> Subscriber:
    return Subscriber(received, Logger("test"), topic=topic, bind=bind)


@pytest.fixture
def free_address(zmq: Any) -> str:
    """An address of this machine that nobody has."""
    with Publisher(zmq) as publisher:
        return publisher.bind()


def test_engines_that_connect_to_our_address_are_heard(zmq: Any, received: Received, free_address: str) -> None:
    ours = subscriber(received, bind=free_address)
    with Publisher(zmq) as engine, Publisher(zmq) as other:
        for each in (engine, other):
            each.socket.connect(free_address)
            assert each.news() == b"\1kv@"
            each.send()
        assert received.wait(2) == [("", FRAMES)] * 2
    ours.close()


def test_engines_at_their_own_addresses_are_heard_under_their_names_until_they_are_left(
    zmq: Any, received: Received
) -> None:
    ours = subscriber(received)
    with Publisher(zmq) as engine:
        ours.connect("default/a", engine.bind())
        assert engine.news() == b"\1kv@"
        engine.send()
        assert received.wait(1) == [("default/a", FRAMES)]
        ours.disconnect("default/a")
        assert engine.news() == b"\0kv@"
    ours.close()


def test_only_messages_of_the_topic_are_received(zmq: Any, received: Received) -> None:
    ours = subscriber(received)
    with Publisher(zmq) as engine:
        ours.connect("default/a", engine.bind())
        engine.news()
        engine.send([b"metrics", *FRAMES[1:]])
        engine.send()
        assert received.wait(1) == [("default/a", FRAMES)]
    ours.close()


def test_an_engine_that_moved_is_heard_at_its_new_address(zmq: Any, received: Received) -> None:
    ours = subscriber(received)
    with Publisher(zmq) as before, Publisher(zmq) as after:
        ours.connect("default/a", before.bind())
        before.news()
        ours.connect("default/a", after.bind())
        assert after.news() == b"\1kv@"
        assert before.news() == b"\0kv@"
    ours.close()


def test_an_address_that_another_one_has_is_taken_once_it_is_free(
    zmq: Any, received: Received, free_address: str
) -> None:
    """So do two versions of the package, of which the older one goes when the newer one is there."""
    older, later = subscriber(Received(), bind=free_address), Received()
    with Publisher(zmq) as engine:
        engine.socket.connect(free_address)
        engine.news()
        newer = subscriber(later, bind=free_address)
        older.close()
        assert engine.news() == b"\1kv@"
        engine.send()
        assert later.wait(1) == [("", FRAMES)]
    newer.close()


def test_what_its_owner_cannot_take_ends_nothing(zmq: Any, received: Received) -> None:
    def take(name: str, frames: Sequence[bytes]) -> None:
        received(name, frames)
        if frames[2] == b"bad":
            raise TypeError("bad")

    ours = Subscriber(take, Logger("test"), topic="kv@", bind="")
    with Publisher(zmq) as engine:
        ours.connect("default/a", engine.bind())
        engine.news()
        engine.send([*FRAMES[:2], b"bad"])
        engine.send()
        assert received.wait(2)[1] == ("default/a", FRAMES)
    ours.close()


def test_a_socket_that_fails_is_opened_anew(zmq: Any, received: Received) -> None:
    ours = subscriber(received)
    with Publisher(zmq) as engine:
        ours.connect("default/a", engine.bind())
        engine.news()
        ours._open_sockets["default/a"][1].close(linger=0)
        assert engine.news() == b"\0kv@"
        assert engine.news() == b"\1kv@"
        engine.send()
        assert received.wait(1) == [("default/a", FRAMES)]
    ours.close()


def test_an_address_that_cannot_be_used_ends_nothing(zmq: Any, received: Received) -> None:
    ours = subscriber(received)
    ours.connect("default/b", "tcp://nowhere")
    with Publisher(zmq) as engine:
        ours.connect("default/a", engine.bind())
        engine.news()
        engine.send()
        assert received.wait(1) == [("default/a", FRAMES)]
    ours.close()
    assert not ours._thread.is_alive()
