"""A plugin process's main: the handshake, the import of the author's code, and its threads.

====================  =============================================================================
main                  reads the call pipe, blocking, and runs hot calls one after the other
control               reads the control socket; answers pings; never runs the author's code
slow (started lazily) runs `configure`, `check_ready` and `export_state`
workers (as above)    run hot calls of types that take overlapping ones
data (as above)       run calls of the data layer; every `discover` and `watch` has a thread of its own
====================  =============================================================================
"""

from __future__ import annotations

import os
import sys
from _socket import socket as Socket
from _thread import start_new_thread

from hotbay_sdk import _lazy
from hotbay_sdk._call_link import CallServer
from hotbay_sdk._control_link import LOG_DESCRIPTOR, ControlServer, receive
from hotbay_sdk._dispatch import Dispatcher
from hotbay_sdk._errors import describe, fault_of
from hotbay_sdk._host_calls import HostCalls, close_all
from hotbay_sdk._leaving import leave
from hotbay_sdk._plugin import Plugin
from hotbay_sdk.protocol.connection import Connection
from hotbay_sdk.protocol.control import Role
from hotbay_sdk.protocol.events import HandshakeReceived, ViolationFound
from hotbay_sdk.protocol.frames import PROTOCOL_VERSION, FrameType
from hotbay_sdk.protocol.handshake import Hello, Ready, Welcome
from hotbay_sdk.protocol.messages import CallError, ErrorCode, MalformedMessageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from hotbay_sdk.protocol.events import Event

SDK_VERSION = "0.1.0"
FEATURES = ("host_calls", "output_areas", "shared_snapshots", "side_tables", "state")
"""What this end does beside the first form of version 1."""
SIGQUIT = 3
"""Asks for the stacks of all threads in the log, as of other languages' processes; `signal` would import enum."""


def greet(control: Socket, connection: Connection) -> tuple[Welcome, list[Event]]:
    """Send HELLO and wait for WELCOME; return it and the events that came with it."""
    hello = Hello((PROTOCOL_VERSION, PROTOCOL_VERSION), SDK_VERSION, "python", FEATURES)
    control.sendall(connection.send_handshake(FrameType.HELLO, hello.to_wire()))
    while True:
        data, descriptors = receive(control)
        close_all(descriptors)
        events = connection.feed(data)
        for index, event in enumerate(events):
            if isinstance(event, HandshakeReceived) and event.type is FrameType.WELCOME:
                return Welcome.from_wire(event.body), events[index + 1 :]
            if isinstance(event, ViolationFound):
                leave(1, f"the host broke the protocol: {event.message}")


def load(entrypoint: str) -> Plugin | CallError:
    """Import the plugin, or say why it cannot be had."""
    try:
        found = _lazy.attribute_of(entrypoint)
    except SystemExit:
        raise
    except BaseException as fault:  # noqa: BLE001  # named boundary: importing runs the author's code
        sys.stderr.write(_lazy.traceback_text(fault) + describe(fault) + "\n")
        return fault_of(fault)
    if not isinstance(found, Plugin):
        return CallError(
            ErrorCode.INVALID_PACKAGE, f"{entrypoint} is a {type(found).__name__}, expected a hotbay_sdk.Plugin"
        )
    if not found.declarations:
        return CallError(ErrorCode.INVALID_PACKAGE, f"{entrypoint} declares no plugin type")
    return found


def cut_off(descriptors: tuple[int, ...]) -> None:
    """Take the links from a forked child: it could write into the parent's frames and would keep the links open."""
    nowhere = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor, inheritable=False)
    os.close(nowhere)


def main(entrypoint: str, call_in: int, call_out: int, control: int) -> NoReturn:
    """Serve the plugin named by `entrypoint` over inherited descriptors; called after GO, never returns.

    Args:
        entrypoint: `module:attribute` of a `Plugin`.
        call_in: pipe on which hot calls arrive.
        call_out: pipe on which they are answered.
        control: the control socket.
    """
    for descriptor in (call_in, call_out, control):
        os.set_blocking(descriptor, True)
    os.register_at_fork(after_in_child=lambda: cut_off((call_in, call_out, control)))
    _lazy.dump_stacks_on_signal(SIGQUIT, LOG_DESCRIPTOR)
    link = Socket(fileno=control)
    connection = Connection(Role.PLUGIN)
    try:
        welcome, early = greet(link, connection)
    except MalformedMessageError as error:
        leave(1, f"the host's WELCOME: {error}")
    if welcome.protocol != PROTOCOL_VERSION:
        text = f"protocol {welcome.protocol}, this SDK speaks {PROTOCOL_VERSION}"
        link.sendall(connection.send_error(0, CallError(ErrorCode.PROTOCOL_VERSION, text)))
        leave(1, text)
    host = HostCalls(link, connection)
    dispatcher = Dispatcher(generation=welcome.generation, seed=welcome.seed, log_level=welcome.log_level, host=host)
    host.server = calls = CallServer(dispatcher, call_in, call_out, host.waits_for)
    server = ControlServer(link, host, dispatcher, calls)
    start_new_thread(server.run, (early,))
    plugin = load(entrypoint)
    if isinstance(plugin, CallError):
        host.send(lambda: connection.send_error(0, plugin))
        leave(1, "")
    dispatcher.provide(plugin)
    host.send(lambda: connection.send_handshake(FrameType.READY, Ready(plugin.declarations, SDK_VERSION).to_wire()))
    calls.serve()
    server.finish()
    dispatcher.close()
    if _lazy.run_exit_handlers():
        leave(0, "")
    sys.exit(0)
