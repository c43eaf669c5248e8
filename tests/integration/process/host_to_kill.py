"""A host that starts the named plugins, prints their process ids when their code runs, and then only waits."""

import json
import os
import sys

import anyio
import uvloop
from hotbay.process.child import Child
from hotbay.process.launch import STAGE0, LaunchSpec
from hotbay.process.log import LogSink
from hotbay_sdk.protocol import FrameType, encode_frame
from hotbay_sdk.protocol.frames import MAX_FRAME_BYTES, Frame, FrameReader


async def until_running(child: Child) -> None:
    """Take a child to the point where its code said that it runs."""
    reader = FrameReader(lambda *_: MAX_FRAME_BYTES)
    while True:
        await anyio.wait_readable(child.control)
        for frame in reader.feed(child.control.recv(65536)):
            assert isinstance(frame, Frame)
            if frame.type == FrameType.ARMED:
                child.control.send(encode_frame(FrameType.GO, 0, b"\x80"))
            elif frame.type == FrameType.EVENT:
                return


async def main(environment: str, modules: list[str]) -> None:
    """Start one plugin a module, then wait to be killed."""
    children = []
    for module in modules:
        spec = LaunchSpec(sys.executable, STAGE0, environment, f"{module}:main", environment, "none", module)
        children.append(Child.start(spec, LogSink(module)))
    for child in children:
        await until_running(child)
    os.write(1, json.dumps([child.pid for child in children]).encode() + b"\n")
    await anyio.sleep_forever()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2:]))
