"""The wire as the reference peer speaks it: frames in and out of three descriptors, and the fault on demand."""

import os
import select
import socket
import struct
import sys

import msgpack

MAGIC, VERSION, CAP = 0xF5, 1, 16 * 1024 * 1024
ARMED, GO, HELLO, WELCOME, READY, REQ, RESP, ERR = 1, 2, 3, 4, 5, 6, 7, 8
DATA, END, CANCEL, CREDIT, PING, PONG, GOAWAY, EVENT = 9, 10, 11, 12, 13, 14, 15, 16
KNOWN = {*range(1, 18)}
CARRIES, CRITICAL = 0x02, 0x80
HEADER = struct.Struct(">BBBBII")

FAULT = next((arg for arg in sys.argv[1:] if not arg.startswith("--")), "")
CALL_IN, CALL_OUT, CONTROL = map(int, os.environ["HOTBAY_CHANNEL"].split(","))  # noqa: TID251 - how a host tells
control = socket.socket(fileno=CONTROL)
for descriptor in (CALL_IN, CALL_OUT, CONTROL):
    os.set_blocking(descriptor, False)


class Ended(Exception):
    """The host broke the protocol on a link."""


class Reader:
    """Frames of one link. `passed` are descriptors that came, of one frame each."""

    def __init__(self, name):
        self.name = name
        self.kept = b""
        self.passed = []

    def feed(self, data):
        kept, self.kept = self.kept, b""
        data = data if f"cut-{self.name}" == FAULT else kept + data
        while data:
            data = self.aligned(data)
            if len(data) < HEADER.size:
                break
            _, kind, flags, version, stream, length = HEADER.unpack_from(data)
            self.judge(version, length)
            end = HEADER.size + length
            if len(data) < end:
                break
            body, data = data[HEADER.size : end], data[end:]
            if kind in KNOWN:
                yield kind, self.passed_with(flags), stream, msgpack.unpackb(body)
            elif FAULT == "dies-of-unknown" or (flags & CRITICAL and FAULT != "skips-critical"):
                raise Ended
        self.kept = data

    def passed_with(self, flags):
        if not flags & CARRIES:
            return ()
        if self.passed:
            return self.passed.pop(0)
        if FAULT != "any-flag":
            raise Ended
        return ()

    def aligned(self, data):
        if data[0] == MAGIC:
            return data
        if f"resync-{self.name}" != FAULT:
            raise Ended
        return data[data.find(b"\xf5") :] if b"\xf5" in data else b""

    def judge(self, version, length):
        if version != VERSION and FAULT != "any-version":
            raise Ended
        if length > (1 << 20 if FAULT == "small-cap" else CAP) and FAULT != "no-cap":
            raise Ended


def frame(kind, stream, value):
    body = msgpack.packb(value)
    return HEADER.pack(MAGIC, kind, 0, VERSION, stream, len(body)) + body


def error(stream, code, message, *, executed="no", details=None):
    message = message if FAULT == "long-messages" else message[:4096]
    body = {"code": code, "message": message, "retryable": False, "executed": executed}
    return frame(ERR, stream, body | {"details": details or {}, "traceback": ""})


def host_is_gone():
    try:
        return control.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False


def write(fd, data):
    """Write it all; a host that is gone meanwhile ends the process even if nobody reads."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            watched = [] if FAULT == "stuck" else [CONTROL]
            readable, _, _ = select.select(watched, [fd], [])
            if readable and host_is_gone():
                os._exit(0)


def say(data):
    write(CONTROL, data)


def receive():
    """What came on the control link, and the descriptors beside it. Raises BlockingIOError."""
    data, ancillary, _, _ = control.recvmsg(1 << 20, 64)
    rights = b"".join(raw for level, kind, raw in ancillary if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS))
    return data, [*memoryview(rights).cast("i")]
