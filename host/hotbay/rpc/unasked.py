"""What a process sends that answers no call: data, its own calls, handshakes, pongs, farewells, and what it must not send.

What nobody asked for counts against its link, see `Wire`.
"""

import asyncio
import logging
from collections.abc import Callable

from hotbay_sdk.protocol import CallError as WireError
from hotbay_sdk.protocol import (
    CallReceived,
    CallRefused,
    CancelReceived,
    CreditReceived,
    DataDropped,
    DataEnded,
    DataReceived,
    ErrorCode,
    Event,
    FrameType,
    GoAwayReceived,
    HandshakeReceived,
    PongReceived,
    StrayAnswer,
    ViolationFound,
)

from hotbay.errors import HostError, PluginFault
from hotbay.rpc.calling import Calls
from hotbay.rpc.data import DataLink
from hotbay.rpc.handshakes import Handshakes
from hotbay.rpc.host_desk import HostCallDesk
from hotbay.rpc.strays import Strays
from hotbay.rpc.suspicion import Suspicion
from hotbay.rpc.wire import Wire

logger = logging.getLogger(__name__)

__all__ = ["Unasked"]


class Unasked:
    """See the module.

    Args:
        calls: of the process.
        label: of the process.
        data: of its calls.
        desk: serves what it calls.
        handshakes: takes what it says at its start.
        suspicion: takes its pongs.
        lost: told what it must not send.
        on_goaway: told at most once that it wants to be replaced, and why.
    """

    def __init__(
        self,
        calls: Calls,
        label: str,
        *,
        data: DataLink,
        desk: HostCallDesk,
        handshakes: Handshakes,
        suspicion: Suspicion,
        lost: Callable[[HostError], None],
        on_goaway: Callable[[str], None] | None,
    ) -> None:
        self._calls = calls
        self._label = label
        self._data = data
        self._desk = desk
        self._handshakes = handshakes
        self._suspicion = suspicion
        self._lost = lost
        self._on_goaway = on_goaway
        self._loop = asyncio.get_running_loop()
        self.strays = Strays()

    def take(self, wire: Wire, event: Event) -> None:
        """Take an event that is no answer."""
        if isinstance(event, DataReceived | DataEnded | DataDropped | CreditReceived):
            wire.unasked += wire is not self._calls.control or not self._data.take(event)
        elif isinstance(event, CallReceived):
            wire.unasked += not self._serve(wire, event)
        elif isinstance(event, CancelReceived):
            self._desk.cancel(event.stream)
        else:
            wire.unasked += 1
            self._take_rest(wire, event)

    def _take_rest(self, wire: Wire, event: Event) -> None:
        if isinstance(event, HandshakeReceived):
            self._handshakes.take(event)
            if event.type is FrameType.READY and self._calls.fault is None:
                self._suspicion.start()
        elif isinstance(event, PongReceived):
            self._suspicion.answered(event.token, event.facts)
        elif isinstance(event, GoAwayReceived):
            self._goes_away(event)
        elif isinstance(event, ViolationFound):
            self._lost(PluginFault(str(event.code), f"{self._label} on the {wire.name} link: {event.message}"))
        elif isinstance(event, StrayAnswer):
            if self.strays.too_many(self._loop.time()):
                self._lost(PluginFault("PROTOCOL_VIOLATION", f"{self._label} answers calls that were never made"))
        elif isinstance(event, CallRefused):
            self._refuse(wire, event)
        else:
            logger.debug("frame_ignored", extra={"plugin": self._label, "event": type(event).__name__})

    def _serve(self, wire: Wire, event: CallReceived) -> bool:
        if self._calls.fault is not None:
            return False
        if wire is not self._calls.control:
            error = WireError(ErrorCode.PROTOCOL_VIOLATION, "host calls travel on the control link")
            self._refuse(wire, CallRefused(event.stream, error))
            return False
        return self._desk.take(event, self._loop.time())

    def _refuse(self, wire: Wire, event: CallRefused) -> None:
        if self._calls.fault is not None:
            return
        if wire is self._calls.control:
            self._desk.refuse(event)
        elif not wire.full:
            wire.write(wire.connection.send_error(event.stream, event.error))
        else:
            self._lost(PluginFault("PROTOCOL_VIOLATION", f"{self._label} calls its host and does not read the answers"))

    def _goes_away(self, event: GoAwayReceived) -> None:
        told, self._on_goaway = self._on_goaway, None
        if told is not None and self._calls.fault is None:
            told(f"{event.code[:64]}: {event.message[:256]}")
