"""A host that records its processes, starts one plugin, prints what that one said, and only waits to be killed."""

import os
import sys
from pathlib import Path

import anyio
import uvloop
from hotbay.process.child import Child
from hotbay.process.launch import STAGE0, LaunchSpec
from hotbay.process.leftovers import HostRecords
from hotbay.process.log import LogSink
from hotbay_sdk.protocol import FrameType, encode_frame
from hotbay_sdk.protocol.frames import MAX_FRAME_BYTES, Frame, FrameReader


async def main(environment: str, root: str) -> None:
    """Start, say, wait."""
    records = HostRecords.open(Path(root))
    spec = LaunchSpec(
        sys.executable, STAGE0, environment, "plugin_under_test:main", "/", "none", "faulty#1",
        record_in=str(records.folder),
    )  # fmt: skip
    child = Child.start(spec, LogSink("faulty#1"))
    reader = FrameReader(lambda *_: MAX_FRAME_BYTES)
    while True:
        await anyio.wait_readable(child.control)
        for frame in reader.feed(child.control.recv(65536)):
            assert isinstance(frame, Frame)
            if frame.type == FrameType.ARMED:
                child.control.send(encode_frame(FrameType.GO, 0, b"\x80"))
            elif frame.type == FrameType.EVENT:
                os.write(1, frame.body + b"\n")


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
