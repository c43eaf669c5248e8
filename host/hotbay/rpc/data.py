"""Data that calls of the control link carry beside their arguments: the state of a plugin, out and in.

What comes is kept up to the budget of its call and credited at once; what goes is written piece by piece as the
plugin gives credit, behind every control frame. Lives on the loop's thread with its wire.
"""

from collections.abc import Callable

from hotbay_sdk.protocol import CreditReceived, DataDropped, DataEnded, DataReceived

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


class Sending:
    """Data of one call that is going out."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.position = 0


class DataLink:
    """The data of all calls on one wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._coming: dict[int, Collection] = {}
        self._going: dict[int, Sending] = {}

    def collect(self, stream: int, budget_bytes: int, over: Callable[[], None]) -> Collection:
        """Keep what comes on a stream; `over` is called once, when it is more than the budget. `end` when done."""
        found = self._coming[stream] = Collection(budget_bytes, over)
        return found

    def send(self, stream: int, data: bytes) -> None:
        """Send `data` and its end on a stream, as there is credit. `end` when done."""
        self._going[stream] = Sending(data)
        self._pump(stream)

    def end(self, stream: int) -> None:
        """The call of a stream is over."""
        self._coming.pop(stream, None)
        self._going.pop(stream, None)

    def take(self, event: DataEvent) -> bool:
        """Take an event of the wire; false for data that nobody asked for."""
        if isinstance(event, CreditReceived):
            for stream in tuple(self._going):
                self._pump(stream)
            return bool(self._going)
        if isinstance(event, DataDropped):
            self._credit(event.stream, event.length)
            return False
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
