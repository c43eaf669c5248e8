"""A host that may be process 1: starts one plugin that orphans 50 processes, and says what is left of them.

`python host_as_init.py ENVIRONMENT alone|guarded` prints {pid, zombies, descriptors: [before, after]} and exits with 7;
`wait` in their place waits for SIGTERM and exits with 5.
"""

import json
import os
import signal
import sys
from pathlib import Path

import anyio
import uvloop
from hotbay.process.child import Child
from hotbay.process.init import leave_process_1
from hotbay.process.launch import STAGE0, LaunchSpec
from hotbay.process.log import LogSink
from hotbay.process.proc import process_ids, read_stat
from hotbay_sdk.protocol import FrameType, encode_frame
from hotbay_sdk.protocol.frames import MAX_FRAME_BYTES, Frame, FrameReader

PATIENCE_S = 10.0
"""Five times the two seconds of the field failure."""


def zombies() -> int:
    """Processes that nobody reaped."""
    return sum(1 for pid in process_ids() if (found := read_stat(pid)) is not None and found.state == "Z")


def say(**fields: object) -> None:
    """One line of JSON."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


async def reaped(within_s: float) -> int:
    """How many zombies are left, once there is none and all orphans have ended, or at the deadline."""
    with anyio.move_on_after(within_s):
        # Process 1, this one if it is another, and the plugin stay.
        while zombies() or len(list(process_ids())) > 3:  # noqa: ASYNC110 - nobody is told of another process's child
            await anyio.sleep(0.01)
    return zombies()


def descriptors() -> int:
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def said(child: Child) -> None:
    """Take the plugin to the point where it said that it is done."""
    reader = FrameReader(lambda *_: MAX_FRAME_BYTES)
    while True:
        await anyio.wait_readable(child.control)
        for frame in reader.feed(child.control.recv(65536)):
            assert isinstance(frame, Frame)
            if frame.type == FrameType.ARMED:
                child.control.send(encode_frame(FrameType.GO, 0, b"\x80"))
            elif frame.type == FrameType.EVENT:
                return


async def main(environment: str, *, guarded: bool) -> None:
    """One plugin, then count."""
    spec = LaunchSpec(sys.executable, STAGE0, environment, "plugin_under_test:main", "/", "none", "forks#1")
    before = descriptors()
    child = Child.start(spec, LogSink("forks#1"))
    await said(child)
    # Those that nobody reaps stay; those that somebody does are gone at once, or a moment later.
    left = await reaped(PATIENCE_S if guarded else 1.0)
    await child.stop(1)
    child.close()
    say(pid=os.getpid(), zombies=left, descriptors=[before, descriptors()])


if __name__ == "__main__":
    _, folder, mode = sys.argv
    if mode != "alone":
        leave_process_1()
    if mode == "wait":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        say(pid=os.getpid())
        signal.sigwait({signal.SIGTERM})
        sys.exit(5)
    uvloop.run(main(folder, guarded=mode == "guarded"))
    sys.exit(7)
