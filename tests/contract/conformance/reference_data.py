"""The data layer and the shared memory of the reference peer, written from docs/protocol.md alone."""

import mmap
import os
import struct

import msgpack
from reference_wire import FAULT, RESP, error, frame

POLL_EXTRACT, EVENT_EXTRACT, NOTIFY, DISCOVER, WATCH, POLL = range(20, 26)
ENDPOINTS = 700
"""Told of by a run, so that it needs more than its first credit."""
DEPLOYMENTS, PODS = "object:apps/v1/Deployment", "object:/v1/Pod"
POLLED = {"points": ["extract"], "payload": "metrics", "families": ["queue"]}
TYPES = {
    "reference-extractor": POLLED | {"attributes": {"depth": "f32", "engine": "value"}},
    "reference-events": {"points": ["extract"], "payload": "endpoint", "attributes": {"seen": "i64"}},
    "reference-source": {"points": ["source"], "payload": DEPLOYMENTS},
    "reference-discovery": {"points": ["discover"]},
    "reference-watch": {"points": ["watch"], "payload": PODS},
    "reference-poll": {"points": ["poll"], "payload": "text"},
}
METHODS = dict(zip(TYPES, range(20, 26), strict=True))
if FAULT == "odd-payload":
    TYPES["reference-extractor"]["payload"] = "pages"


def declarations(types):
    """What READY says of these types."""
    rest = {"reads": [], "consumes": [], "produces": [], "rowwise": False, "concurrency": 1}
    return [{"type": name} | rest | declared for name, declared in types.items()]


def refusal(stream, method, handle, generation, handles):
    """The error that a call with a bad handle is answered with; None for a good one."""
    if handle[0] != generation:
        return None if FAULT == "any-data-generation" else error(stream, "STALE_HANDLE", "of another generation")
    _, name = handles.get(handle[1], ("", ""))
    return None if METHODS.get(name) == method else error(stream, "PROTOCOL_VIOLATION", "no handle of that point")


def answer(stream, method, args):
    """The answer to a call of the data layer that is no run."""
    return frame(RESP, stream, RESULTS[method](*args[1:]))


def extract(endpoint, payload):
    depth = sum(value for _, value in payload.get("queue", []))
    if FAULT == "undeclared":
        return {"other": depth}
    return {"depth": "many" if FAULT == "other-kinds" else depth, "engine": {"port": endpoint["port"]}}


def seen(number, event):
    found = {"seen": number if event["type"] == "add_or_update" else None}
    return found if FAULT == "flat-events" else {event["endpoint"]["id"]: found}


def notify(_number, event):
    if FAULT == "half-events":
        del event["object"]
    return event


RESULTS = {
    POLL_EXTRACT: extract,
    EVENT_EXTRACT: seen,
    NOTIFY: notify,
    POLL: lambda endpoint: endpoint["port"] if FAULT == "other-payload" else f"port {endpoint['port']}",
}


class Runs:
    """What runs tell."""

    def __init__(self):
        self.told = set()

    def data(self, method):
        """All that is there, as records."""
        verb = "add" if FAULT == "adds" else "upsert"
        things = [] if FAULT == "tells-once" and method in self.told else [*self.things(method)]
        self.told.add(method)
        records = [*([verb, thing] for thing in things), *([] if FAULT == "never-ready" else [["ready"]])]
        packed = map(msgpack.packb, records)
        return b"".join(struct.pack(">I", len(record)) + record for record in packed)

    def things(self, method):
        for number in range(ENDPOINTS):
            if method == DISCOVER:
                endpoint = {"id": f"default/{number}", "address": f"10.0.{number // 256}.{number % 256}", "port": 8000}
                yield endpoint | {"labels": {"llm-d.ai/role": "decode", "of": "the reference peer's own discovery"}}
            else:
                kind = "Node" if FAULT == "other-objects" else "Pod"
                metadata = {"name": f"pod-{number}", "namespace": "default", "labels": {"app": "conformance"}}
                yield {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {"nodeName": "the-only-one"}}


class Memory:
    """Areas that the host passed, by number."""

    def __init__(self):
        self.areas = {}
        self.outputs = {}

    def share(self, passed, named, dropped, written=()):
        for number, descriptor in zip(named, passed, strict=True):
            if number in written:
                self.outputs[number] = mmap.mmap(descriptor, 0)
            else:
                self.areas[number] = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
            os.close(descriptor)
        for number in () if FAULT == "keeps-areas" else dropped:
            self.areas.pop(number, None)
            self.outputs.pop(number, None)

    def columns(self, places, rows):
        """The columns at these places; None when one of them is not there."""
        found = {}
        for number, slot, stamp in places:
            memory = self.areas.get(number)
            if memory is None or FAULT == "ignores-areas":
                return None
            _, _, _, count, slots_at, slot_bytes = struct.unpack_from("<6I", memory, 8)
            begin = slots_at + slot * slot_bytes
            for entry in range(64, 64 + 160 * count, 160):
                offset, code, length = struct.unpack_from("<IBB", memory, entry)
                name = memory[entry + 6 : entry + 6 + length].decode()
                at = begin + offset
                found[name] = memory[at : at + rows * (8 if code == ord("q") else 4)]
            # After the copy alone: what was overwritten before it is told by the same word.
            if struct.unpack_from("<Q", memory, begin)[0] != stamp and FAULT != "any-stamp":
                return None
        return found

    def write(self, scores, region):
        """The scores, or how many bytes of them were written to the region."""
        if not region:
            return scores
        ((number, at, size),) = region
        memory = self.outputs.get(number)
        if memory is None or (size != len(scores) and FAULT != "any-length"):
            return scores
        at = 0 if FAULT == "writes-beside" else at
        memory[at : at + len(scores)] = scores
        return size
