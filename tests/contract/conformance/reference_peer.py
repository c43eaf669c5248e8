"""The plugin's side of the protocol once more, without the SDK: one thread, one type, and a fault on demand.

Run as a command: `python reference_peer.py [--armed] [FAULT]`. Without a fault it keeps every rule; each fault breaks one,
so that a conformance run that does not notice it is itself at fault. Written from docs/protocol.md alone.
"""

import os
import select
import signal
import socket
import struct
import sys
import time

import msgpack

MAGIC, VERSION, CAP = 0xF5, 1, 16 * 1024 * 1024
ARMED, GO, HELLO, WELCOME, READY, REQ, RESP, ERR = 1, 2, 3, 4, 5, 6, 7, 8
DATA, END, CANCEL, CREDIT, PING, PONG, GOAWAY, EVENT = 9, 10, 11, 12, 13, 14, 15, 16
KNOWN = {*range(1, 18)}
RUN, CONFIGURE, EXPORT, IMPORT, DUMP, CHECK_READY = 3, 30, 31, 32, 35, 36
STREAM_CREDIT, LINK_CREDIT, PIECE = 64 * 1024, 1024 * 1024, 32 * 1024
STATE_BYTES = 300_000
TYPE = "reference-scorer"
HEADER = struct.Struct(">BBBBII")

FAULT = next((arg for arg in sys.argv[1:] if not arg.startswith("--")), "")
CALL_IN, CALL_OUT, CONTROL = map(int, os.environ["HOTBAY_CHANNEL"].split(","))  # noqa: TID251 - how a host tells
control = socket.socket(fileno=CONTROL)
for descriptor in (CALL_IN, CALL_OUT, CONTROL):
    os.set_blocking(descriptor, False)


class Ended(Exception):
    """The host broke the protocol on a link."""


class Reader:
    """Frames of one link."""

    def __init__(self, name):
        self.name = name
        self.kept = b""

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
                yield kind, stream, msgpack.unpackb(body)
            elif FAULT == "dies-of-unknown" or (flags & 0x80 and FAULT != "skips-critical"):
                raise Ended
        self.kept = data

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


class Peer:
    """What a plugin process knows between calls."""

    def __init__(self):
        self.readers = {CALL_IN: Reader("calls"), CONTROL: Reader("control")}
        self.generation = 0
        self.handles = {}
        self.views = {}
        self.tables = -1, {}
        self.cancelled = set()
        self.later = []
        self.leaving = False
        self.other = None
        self.early = []
        self.link_credit = LINK_CREDIT
        self.exports = {}
        self.imports = {}
        self.state = None

    # -- start

    def next_control(self, kind):
        while True:
            select.select([CONTROL], [], [])
            data = control.recv(65536)
            while not data and FAULT == "outlives-start":
                time.sleep(60)
            if not data:
                os._exit(0)
            frames = list(self.readers[CONTROL].feed(data))
            for index, (found, _, body) in enumerate(frames):
                if found == kind:
                    # What the host sends behind it is served once READY was said.
                    self.early = frames[index + 1 :]
                    return body

    def start(self):
        if "--armed" in sys.argv:
            say(frame(ARMED, 0, {"incarnation": "1", "enforced": []}))
            if FAULT != "no-go":
                self.next_control(GO)
        versions = [2, 3] if FAULT == "other-version" else [1, 1]
        hello = {"protocol": versions, "sdk": "reference", "language": "python", "features": ["side_tables"]}
        say(frame(HELLO, 0, hello))
        reads = ["endpoint.waiting", "endpoint.labels"]
        declared = {"type": TYPE, "points": ["score"], "reads": reads, "consumes": [], "produces": []}
        declared |= {"rowwise": True, "concurrency": 1, "state_versions": [1]}
        ready = frame(READY, 0, {"types": [declared] * (2 if FAULT == "twice" else 1), "sdk": "reference"})
        if FAULT == "hasty":
            say(ready)
        if FAULT == "whole-welcome":
            select.select([CONTROL], [], [])
            if len(control.recv(65536)) < 20:
                os._exit(1)
            welcome = {"protocol": 1, "generation": 7}
        else:
            welcome = self.next_control(WELCOME)
        self.generation = welcome["generation"]
        if welcome["protocol"] != 1 and FAULT != "any-welcome":
            say(error(0, "PROTOCOL_VERSION", "speaks 1"))
            os._exit(1)
        if FAULT == "descriptors":
            socket.send_fds(control, [ready], [0])
        else:
            say(ready)

    # -- service

    def serve(self):
        for kind, stream, body in self.early:
            self.on_control(kind, stream, body)
        while True:
            readable, _, _ = select.select([CALL_IN, CONTROL], [], [], 0.3 if self.later else None)
            if not readable:
                self.answer_later()
            for fd in (CONTROL, CALL_IN):
                if fd in readable:
                    self.read(fd)
            if self.leaving and not select.select([CALL_IN], [], [], 0)[0]:
                os._exit(3 if FAULT == "exits-with-3" else 0)

    def answer_later(self):
        for data in self.later:
            write(CALL_OUT, data)
        self.later = []

    def read(self, fd):
        data = os.read(fd, 1 << 20)
        if not data:
            if FAULT == "outlives-host" and fd == CONTROL:
                time.sleep(60)
            os._exit(0)
        received = time.monotonic()
        frames = list(self.readers[fd].feed(data))
        for kind, stream, body in frames:
            if fd == CONTROL:
                self.on_control(kind, stream, body)
            elif kind == REQ:
                answered = self.call(stream, body, received)
                if FAULT == "leaves-at-once" and len(frames) > 8:
                    self.later.append(answered)
                else:
                    write(CALL_OUT, answered)
            elif kind == CANCEL:
                self.on_cancel(stream)
            elif kind == EVENT and FAULT == "answers-events":
                write(CALL_OUT, frame(RESP, 0, None))

    def on_cancel(self, stream):
        if FAULT == "answers-cancels":
            write(CALL_OUT, error(stream, "CANCELLED", "as you like"))
        if FAULT == "mixes-answers":
            self.other = frame(RESP, 0, [None, bytes(12), []])
        self.cancelled.add(stream)

    def on_control(self, kind, stream, body):
        if kind == PING:
            if FAULT == "one-thing-at-a-time" and self.exports:
                return
            token = body + 1 if FAULT == "other-token" else body
            say(frame(PONG, 0, [token, {"in_flight": 0, "oldest_ms": 0, "rss_bytes": 0, "cpu_ms": 0}]))
        elif kind == GOAWAY:
            if FAULT == "leaves-at-once":
                os._exit(0)
            if FAULT == "leaves-a-child":
                self.leave_a_child()
            self.leaving = True
        elif kind == REQ:
            self.on_control_call(stream, body[0], body[7:])
        elif kind == CANCEL and stream in self.exports and FAULT != "exports-on":
            del self.exports[stream]
            say(error(stream, "CANCELLED", "given up"))
        elif kind == CREDIT:
            self.on_credit(stream, body)
        elif kind in (DATA, END):
            self.on_data(kind, stream, body)

    def leave_a_child(self):
        """It holds the call link until the host closes its end, and is in no group that a host would kill."""
        read_end, write_end = os.pipe()
        if os.fork() == 0:
            control.close()
            os.setsid()
            os.close(write_end)
            select.select([CALL_IN], [], [])
            os._exit(0)
        os.close(write_end)
        select.select([read_end], [], [])

    def on_control_call(self, stream, method, args):
        if method == CONFIGURE:
            if FAULT == "prints":
                os.write(CALL_OUT, b"configured\n")
            say(frame(RESP, stream, self.configure(**args[0])))
        elif method == CHECK_READY:
            say(frame(RESP, stream, {"ready": True, "waiting": []}))
        elif method == EXPORT:
            names = {name for name, _ in self.handles.values()}
            sections = [self.section(name) for name in sorted(names)]
            self.exports[stream] = [b"".join(sections), STREAM_CREDIT, dict.fromkeys(names, "exported")]
            self.pump(stream)
        elif method == IMPORT:
            self.imports[stream] = b""
        elif method == DUMP and FAULT != "no-dump":
            say(frame(RESP, stream, {"calls": [], "in_flight": 0}))
        elif method != DUMP:
            say(self.refuse(stream, method, args))

    # -- state

    def section(self, name):
        pieces = [bytes(PIECE)] * (STATE_BYTES // PIECE)
        records = [msgpack.packb(value) for value in ({"type": TYPE, "name": name, "version": 1}, *pieces, None)]
        return b"".join(struct.pack(">I", len(record)) + record for record in records)

    def pump(self, stream):
        data, credit, names = self.exports[stream]
        while data and (FAULT == "no-credit" or min(credit, self.link_credit) > 0):
            piece = data[: PIECE if FAULT == "no-credit" else min(PIECE, credit, self.link_credit)]
            say(frame(DATA, stream, piece))
            data, credit, self.link_credit = data[len(piece) :], credit - len(piece), self.link_credit - len(piece)
        self.exports[stream] = [data, credit, names]
        if not data:
            del self.exports[stream]
            if FAULT != "no-end":
                say(frame(END, stream, None))
            say(frame(RESP, stream, {"refs": names}))

    def on_credit(self, stream, count):
        if stream == 0:
            self.link_credit += count
        elif stream in self.exports:
            self.exports[stream][1] += count
        for waiting in list(self.exports):
            self.pump(waiting)

    def on_data(self, kind, stream, body):
        if stream not in self.imports:
            if FAULT == "dies-of-data":
                raise Ended
        elif kind == DATA:
            self.imports[stream] += body
        else:
            self.state = self.imports.pop(stream)
            if FAULT == "dies-of-state" and self.state[:2] == b"\xff\xff":
                raise Ended
            say(frame(RESP, stream, None))
        if kind == DATA:
            say(frame(CREDIT, 0, len(body)) + (frame(CREDIT, stream, len(body)) if stream in self.imports else b""))

    def refuse(self, stream, method, args):
        if FAULT == "dies-of-methods":
            os._exit(1)
        return error(stream, "PROTOCOL_VIOLATION", f"no method {method} with {args}")

    def configure(self, create, drop):
        good, errors = {}, []
        for entry in create:
            if entry["type"] == TYPE or FAULT == "makes-anything":
                good[entry["handle"][1]] = (entry["name"], entry["type"])
            else:
                errors.append({"handle": entry["handle"], "path": "", "message": "no such type"})
        if FAULT != "keeps-dropped":
            for handle in drop:
                self.handles.pop(handle[1], None)
        if errors and FAULT != "makes-half":
            return {"instances": {}, "errors": errors}
        self.handles |= good
        result = {"instances": {str(number): {"block_tokens": None} for number in good}, "errors": errors}
        if self.state is not None and FAULT != "forgets-state":
            held = {name: self.state == self.section(name) for name, _ in good.values()}
            outcomes = {str(n): "imported" if held[name] else "cold: unreadable" for n, (name, _) in good.items()}
            result, self.state = result | {"state": outcomes}, None
        return result

    def call(self, stream, body, received):
        if FAULT == "short-ids":
            stream &= 0xFFFF
        method, deadline_us, args = body[0], body[1], body[7:]
        if self.other is not None:
            mixed, self.other = self.other, None
            return mixed[:4] + stream.to_bytes(4, "big") + mixed[8:]
        if stream in self.cancelled:
            return b"" if FAULT == "forgets-cancelled" else error(stream, "CANCELLED", "cancelled before it began")
        if time.monotonic() - received >= deadline_us / 1e6 and FAULT != "no-deadlines":
            return error(stream, "DEADLINE_EXCEEDED", "late")
        if method != RUN:
            return self.refuse(stream, method, args)
        answered = self.run(stream, *args)
        return answered * 2 if FAULT == "answers-twice" else answered

    def holds_tables(self, version, tables, *base):
        """Take what a call says of side tables; false if it cannot be completed."""
        held, known = self.tables
        if tables is None or base:
            if FAULT != "invents-tables" and held != (base[0] if base else version):
                return False
            tables = known | (tables or {})
        self.tables = version, tables
        return True

    def run(self, stream, steps, view, candidates, requests):
        ((_, (generation, number)),) = steps
        if generation != self.generation and FAULT != "any-generation":
            return error(stream, "STALE_HANDLE", "of another generation")
        if number not in self.handles and FAULT != "any-handle":
            return error(stream, "STALE_HANDLE", "not configured")
        epoch, rows, membership, ids, columns, *more = view
        for name, value in (("ids", ids), ("columns", columns)):
            key = (name, membership, epoch if name == "columns" else 0)
            if value is not None:
                self.views[key] = value
            elif key not in self.views and FAULT != "invents-views":
                return error(stream, "UNAVAILABLE", f"send the {name}", details={"missing": name})
        if not self.holds_tables(*more[1]):
            return error(stream, "UNAVAILABLE", "send the tables", details={"missing": "tables"})
        size = requests[0]
        if FAULT == "one-mask" and candidates is not None and len(candidates) > (rows + 7) // 8:
            return error(stream, "PLUGIN_ERROR", "one row of mask, please")
        length = 4 * size * rows - (4 if FAULT == "short" and size > 1 else 0)
        return frame(RESP, stream, [None, struct.pack("<f", 0.5) * (length // 4), []])


if FAULT == "ignores-sigterm":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
peer = Peer()
try:
    peer.start()
    peer.serve()
except Ended:
    os._exit(1)
