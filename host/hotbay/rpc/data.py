"""Data that calls of the control link carry beside their arguments: the state of a plugin, out and in; what it discovers.

State that comes is kept up to the budget of its call and credited at once; what goes is written piece by piece as the
plugin gives credit, behind every control frame. What a call without end brings is credited when it is taken, so that a
plugin which tells more than is read has to wait. Lives on the loop's thread with its wire.
"""

from collections.abc import Callable

from hotbay_sdk.protocol import CreditReceived, DataDropped, DataEnded, DataReceived, LinkState

from hotbay.errors import PluginFault
from hotbay.rpc.wire import Wire

DataEvent = CreditReceived | DataDropped | DataEnded | DataReceived


class Collection:
    """Data of one call that is coming in. `whole`: its end was seen."""

    __slots__ = ("budget_bytes", "data", "over", "whole")

    def __init__(self, budget_bytes: int, over: Callable[[], None]) -> None:
        self.budget_bytes = budget_bytes
        self.over = over
        self.data = bytearray()
        self.whole = False

    def taken(self, label: str) -> bytes:
        """What came. Raises `PluginFault` when its end was not seen; `label` is the process's."""
        if not self.whole:
            raise PluginFault("BAD_RESULT", f"{label} broke its state off")
        return bytes(self.data)


class Sending:
    """Data of one call that is going out."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.position = 0


class Flow:
    """Data of one call without end, in order. `take` what came, `cancel` when no more is wanted."""

    __slots__ = ("_came", "_cancel", "_credit", "_data", "stream")

    def __init__(
        self, stream: int, came: Callable[[], None], credit: Callable[[int], None], cancel: Callable[[], None]
    ) -> None:
        self.stream = stream
        self._came = came
        self._credit = credit
        self._cancel = cancel
        self._data = bytearray()

    def take(self) -> bytes:
        """What came since the last time; the plugin may send as much again."""
        data = bytes(self._data)
        self._data.clear()
        if data:
            self._credit(len(data))
        return data

    def cancel(self) -> None:
        """Take no more; `done` follows when the plugin gave it up. What came and was not taken is dropped."""
        self.take()
        self._came = _nobody
        self._cancel()

    def add(self, data: bytes) -> None:
        """The next piece; for the link."""
        self._data += data
        self._came()
        if self._came is _nobody:
            self.take()


def _nobody() -> None:
    """Nobody wants to know."""


class DataLink:
    """The data of all calls on one wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._coming: dict[int, Collection] = {}
        self._going: dict[int, Sending] = {}
        self._flows: dict[int, Flow] = {}

    def collect(self, stream: int, budget_bytes: int, over: Callable[[], None]) -> Collection:
        """Keep what comes on a stream; `over` is called once, when it is more than the budget. `end` when done."""
        found = self._coming[stream] = Collection(budget_bytes, over)
        return found

    def follow(self, stream: int, came: Callable[[], None], cancel: Callable[[], None]) -> Flow:
        """Take what comes on a stream as it comes, until the call is over."""
        flow = self._flows[stream] = Flow(stream, came, lambda count: self._credit(stream, count), cancel)
        return flow

    def send(self, stream: int, data: bytes) -> None:
        """Send `data` and its end on a stream, as there is credit. `end` when done."""
        self._going[stream] = Sending(data)
        self._pump(stream)

    def end(self, stream: int) -> None:
        """The call of a stream is over."""
        self._coming.pop(stream, None)
        self._going.pop(stream, None)
        self._flows.pop(stream, None)

    def take(self, event: DataEvent) -> bool:
        """Take an event of the wire; false for data that nobody asked for."""
        if isinstance(event, CreditReceived):
            for stream in tuple(self._going):
                self._pump(stream)
            return bool(self._going)
        if isinstance(event, DataDropped):
            self._credit(event.stream, event.length)
            return False
        flow = self._flows.get(event.stream)
        if flow is not None:
            if isinstance(event, DataReceived):
                flow.add(event.data)
            return True
        collection = self._coming.get(event.stream)
        if isinstance(event, DataEnded):
            if collection is not None:
                collection.whole = True
            return collection is not None
        self._credit(event.stream, len(event.data))
        if collection is None:
            return False
        collection.data += event.data
        if len(collection.data) > collection.budget_bytes:
            self.end(event.stream)
            collection.over()
        return True

    def _credit(self, stream: int, count: int) -> None:
        if self._wire.connection.state is not LinkState.OPEN:
            # What a process that is gone left behind is taken all the same; its descriptor may be another's by now.
            return
        due = self._wire.connection.data.consumed(stream, count)
        if due:
            self._wire.write(due)

    def _pump(self, stream: int) -> None:
        sending, connection = self._going[stream], self._wire.connection
        while sending.position < len(sending.data) and connection.data.sending(stream):
            piece = bytes(sending.data[sending.position : sending.position + connection.data.room(stream)])
            if not piece:
                return
            sending.position += len(piece)
            self._wire.write_data(connection.data.send(stream, piece))
        del self._going[stream]
        if connection.data.sending(stream):
            self._wire.write_data(connection.data.send_end(stream))
