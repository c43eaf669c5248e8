"""The plugin's side of the protocol once more, without the SDK: one thread, and a fault on demand.

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
from reference_data import DISCOVER, POLL, POLL_EXTRACT, TYPES, WATCH, Memory, Runs, answer, declarations, refusal
from reference_points import FACTS, POINT_TYPES, RESULTS, answer_point, misdirected
from reference_wire import (
    ARMED,
    CALL_IN,
    CALL_OUT,
    CANCEL,
    CONTROL,
    CREDIT,
    DATA,
    END,
    EVENT,
    FAULT,
    GO,
    GOAWAY,
    HELLO,
    PING,
    PONG,
    READY,
    REQ,
    RESP,
    WELCOME,
    Ended,
    Reader,
    control,
    error,
    frame,
    receive,
    say,
    write,
)

RUN, CONFIGURE, EXPORT, IMPORT, DUMP, CHECK_READY, SHARE = 3, 30, 31, 32, 35, 36, 37
STREAM_CREDIT, LINK_CREDIT, PIECE = 64 * 1024, 1024 * 1024, 32 * 1024
STATE_BYTES = 300_000
TYPE = "reference-scorer"
FEATURES = ["side_tables", "shared_snapshots", "output_areas", "state"]


class Flow:
    """Data of one call that is on its way. A run has no `result`: it goes on when everything was sent."""

    def __init__(self, data, result=None, *, unbound=False):
        self.data = data
        self.result = result
        self.credit = STREAM_CREDIT
        self.unbound = unbound


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
        self.flows = {}
        self.imports = {}
        self.state = None
        self.runs = Runs()
        self.memory = Memory()

    # -- start

    def next_control(self, kind):
        while True:
            select.select([CONTROL], [], [])
            data, _ = receive()
            while not data and FAULT == "outlives-start":
                time.sleep(60)
            if not data:
                os._exit(0)
            frames = list(self.readers[CONTROL].feed(data))
            for index, (found, _, _, body) in enumerate(frames):
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
        say(frame(HELLO, 0, {"protocol": versions, "sdk": "reference", "language": "python", "features": FEATURES}))
        reads = ["endpoint.waiting", "endpoint.labels"]
        declared = {"type": TYPE, "points": ["score"], "reads": reads, "consumes": [], "produces": []}
        declared |= {"rowwise": True, "concurrency": 1, "state_versions": [1]}
        types = [*([declared] * (2 if FAULT == "twice" else 1)), *declarations(TYPES), *declarations(POINT_TYPES)]
        ready = frame(READY, 0, {"types": types, "sdk": "reference"})
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
        for kind, passed, stream, body in self.early:
            self.on_control(kind, passed, stream, body, time.monotonic())
        while True:
            readable, _, _ = select.select([CALL_IN, CONTROL], [], [], 0.3 if self.later else None)
            if not readable:
                self.answer_later()
            for fd in (CONTROL, CALL_IN):
                if fd in readable:
                    self.read(fd)
            if self.leaving and not select.select([CALL_IN], [], [], 0)[0]:
                self.leave()

    def leave(self):
        if self.flows and FAULT == "runs-for-ever":
            return
        for stream in self.flows:
            say(error(stream, "CANCELLED", "the process goes"))
        os._exit(3 if FAULT == "exits-with-3" else 0)

    def answer_later(self):
        for data in self.later:
            write(CALL_OUT, data)
        self.later = []

    def read(self, fd):
        data, passed = receive() if fd == CONTROL else (os.read(fd, 1 << 20), [])
        if passed:
            self.readers[fd].passed.append(passed)
        if not data:
            if FAULT == "outlives-host" and fd == CONTROL:
                time.sleep(60)
            os._exit(0)
        received = time.monotonic()
        frames = list(self.readers[fd].feed(data))
        for kind, with_it, stream, body in frames:
            if fd == CONTROL:
                self.on_control(kind, with_it, stream, body, received)
            elif kind == REQ:
                answered = self.call(stream, body, received)
                if FAULT == "leaves-at-once" and len(frames) > 8:
                    self.later.append(answered)
                else:
                    write(CALL_OUT, answered)
            elif kind == CANCEL:
                self.on_cancel(stream)
            elif kind == EVENT and (FAULT == "answers-events" or (FAULT == "answers-responses" and body[0] > 12)):
                write(CALL_OUT, frame(RESP, 0, None))

    def on_cancel(self, stream):
        if FAULT == "answers-cancels":
            write(CALL_OUT, error(stream, "CANCELLED", "as you like"))
        if FAULT == "mixes-answers":
            self.other = frame(RESP, 0, [None, bytes(12), []])
        self.cancelled.add(stream)

    def on_control(self, kind, passed, stream, body, received):
        if kind == REQ:
            self.on_control_call(stream, passed, body, received)
            return
        for unused in passed if FAULT != "keeps-descriptors" else ():
            os.close(unused)
        if kind == PING:
            self.on_ping(body)
        elif kind == GOAWAY:
            if FAULT == "leaves-at-once":
                os._exit(0)
            if FAULT == "leaves-a-child":
                self.leave_a_child()
            self.leaving = True
        elif kind == CANCEL:
            self.on_control_cancel(stream)
        elif kind == CREDIT:
            self.on_credit(stream, body)
        elif kind in (DATA, END):
            self.on_data(kind, stream, body)

    def on_ping(self, token):
        if FAULT == "one-thing-at-a-time" and self.flows:
            return
        token = token + 1 if FAULT == "other-token" else token
        say(frame(PONG, 0, [token, {"in_flight": 0, "oldest_ms": 0, "rss_bytes": 0, "cpu_ms": 0}]))

    def on_control_cancel(self, stream):
        flow = self.flows.get(stream)
        if flow is not None and ("runs-on" if flow.result is None else "exports-on") != FAULT:
            del self.flows[stream]
            say(error(stream, "CANCELLED", "given up"))
        elif FAULT == "answers-control-cancels":
            say(error(stream, "CANCELLED", "as you like"))

    def on_data_call(self, stream, method, args, *, late):
        refused = refusal(stream, method, args[0], self.generation, self.handles)
        if refused is not None:
            say(refused)
        elif method in (DISCOVER, WATCH):
            self.flows[stream] = Flow(self.runs.data(method), unbound=FAULT == "no-run-credit")
            self.pump(stream)
        elif late and FAULT != "late-data":
            say(error(stream, "DEADLINE_EXCEEDED", "late"))
        else:
            say(answer(stream, method, args))

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

    def on_control_call(self, stream, passed, body, received):
        method, deadline_us, args = body[0], body[1], body[7:]
        if POLL_EXTRACT <= method <= POLL:
            self.on_data_call(stream, method, args, late=time.monotonic() - received >= deadline_us / 1e6)
        elif method == SHARE:
            self.memory.share(passed, *args)
            say(frame(RESP, stream, None))
        else:
            self.on_slow_call(stream, method, args)

    def on_slow_call(self, stream, method, args):
        if method == CONFIGURE:
            if FAULT == "prints":
                os.write(CALL_OUT, b"configured\n")
            say(frame(RESP, stream, self.configure(**args[0])))
        elif method == CHECK_READY:
            say(frame(RESP, stream, {"ready": True, "waiting": []}))
        elif method == EXPORT:
            names = {name for name, _ in self.handles.values()}
            sections = [self.section(name) for name in sorted(names)]
            refs = {"refs": dict.fromkeys(names, "exported")}
            self.flows[stream] = Flow(b"".join(sections), refs, unbound=FAULT == "no-credit")
            self.pump(stream)
        elif method == IMPORT:
            self.imports[stream] = b""
        elif method == DUMP and args:
            say(
                misdirected(stream, method, args[0], self.generation, self.handles)
                or answer_point(stream, method, args)
            )
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
        flow = self.flows[stream]
        while flow.data and (flow.unbound or min(flow.credit, self.link_credit) > 0):
            room = PIECE if flow.unbound else min(PIECE, flow.credit, self.link_credit)
            piece, flow.data = flow.data[:room], flow.data[room:]
            flow.credit -= len(piece)
            self.link_credit -= len(piece)
            say(frame(DATA, stream, piece))
        if not flow.data and flow.result is not None:
            del self.flows[stream]
            if FAULT != "no-end":
                say(frame(END, stream, None))
            say(frame(RESP, stream, flow.result))

    def on_credit(self, stream, count):
        if stream == 0:
            self.link_credit += count
        elif stream in self.flows:
            self.flows[stream].credit += count
        for waiting in list(self.flows):
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
            if entry["type"] in (TYPE, *TYPES, *POINT_TYPES) or FAULT == "makes-anything":
                good[entry["handle"][1]] = (entry["name"], entry["type"])
            else:
                errors.append({"handle": entry["handle"], "path": "", "message": "no such type"})
        if FAULT != "keeps-dropped":
            for handle in drop:
                self.handles.pop(handle[1], None)
        if errors and FAULT != "makes-half":
            return {"instances": {}, "errors": errors}
        self.handles |= good
        told = {str(number): {"block_tokens": None} | FACTS.get(kind, {}) for number, (_, kind) in good.items()}
        result = {"instances": told, "errors": errors}
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
        if method in RESULTS:
            return misdirected(stream, method, args[0], self.generation, self.handles) or answer_point(
                stream, method, args
            )
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

    def missing(self, parts):
        """Keep what a view brings; the name of what it leaves out and never brought."""
        for key, value in parts.items():
            if value is not None:
                self.views[key] = value
            elif key not in self.views and FAULT != "invents-views":
                return key[0]
        return ""

    def run(self, stream, steps, view, candidates, requests, *region):
        ((_, (generation, number)),) = steps
        if generation != self.generation and FAULT != "any-generation":
            return error(stream, "STALE_HANDLE", "of another generation")
        if number not in self.handles and FAULT != "any-handle":
            return error(stream, "STALE_HANDLE", "not configured")
        epoch, rows, membership, ids, columns, areas, tables = view
        if areas is not None:
            columns = self.memory.columns(areas, rows)
        missing = "columns" if areas is not None and columns is None else ""
        missing = missing or self.missing({("ids", membership): ids, ("columns", membership, epoch): columns})
        missing = missing or ("" if self.holds_tables(*tables) else "tables")
        if missing:
            return error(stream, "UNAVAILABLE", f"send the {missing}", details={"missing": missing})
        size = requests[0]
        if FAULT == "one-mask" and candidates is not None and len(candidates) > (rows + 7) // 8:
            return error(stream, "PLUGIN_ERROR", "one row of mask, please")
        length = 4 * size * rows - (4 if FAULT == "short" and size > 1 else 0)
        scores = struct.pack("<f", 0.5) * (length // 4)
        return frame(RESP, stream, [None, self.memory.write(scores, region), []])


if FAULT == "ignores-sigterm":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
peer = Peer()
try:
    peer.start()
    peer.serve()
except Ended:
    os._exit(1)
