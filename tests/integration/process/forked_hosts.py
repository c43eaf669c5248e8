"""Hosts one after the other, forked from a process that has imported everything: what each does begins at once.

`python forked_hosts.py KIND ENVIRONMENT STAGE0 ROUNDS [RECORDS]` prints one JSON object at the end: for each round the
host's exit status and how long it took. Everything that it starts has ENVIRONMENT in its command line.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import uvloop
from hotbay.errors import HostError
from hotbay.process.child import Child
from hotbay.process.launch import LaunchSpec
from hotbay.process.leftovers import HostRecords
from hotbay.process.log import LogSink
from hotbay.rollout.instance import Instance, StartOptions
from hotbay.rpc.leases import Origin

KILLED_WITHIN_S = 0.003
CANCELLED_WITHIN_S = 0.2
PLUGINS = 20


def make_spec(environment: str, stage0: str, label: str, record_in: str = "") -> LaunchSpec:
    """The spec of the plugin under test."""
    return LaunchSpec(
        sys.executable, stage0, environment, "plugin_under_test:plugin", "/", "none", label, record_in=record_in
    )


def killed(environment: str, stage0: str, records: str, chance: random.Random) -> "tuple[int, float]":
    """A host that is killed 0 to 3 ms after it began to start a plugin."""
    begins, began = os.pipe()

    async def start() -> None:
        record_in = str(HostRecords.open(Path(records)).folder) if records else ""
        os.write(began, b".")
        Child.start(make_spec(environment, stage0, "killed#1", record_in), LogSink("killed#1"))
        await anyio.sleep_forever()

    def when() -> None:
        os.read(begins, 1)
        time.sleep(chance.uniform(0, KILLED_WITHIN_S))

    found = forked(start, kill_when=when)
    os.close(begins)
    os.close(began)
    return found


def cancelled(environment: str, stage0: str, _records: str, chance: random.Random) -> "tuple[int, float]":
    """A host that starts 20 plugins, cancels all of it 0 to 200 ms later, and ends."""
    after_s = chance.uniform(0, CANCELLED_WITHIN_S)

    async def bring_up(number: int) -> None:
        spec = make_spec(environment, stage0, f"cancelled#{number}")
        async with anyio.create_task_group() as group:
            instance = Instance.launch(spec, LogSink(spec.label), lambda _: None)
            group.start_soon(instance.watch)
            try:
                await instance.handshake(Origin("cancelled", "1", 1, "sha256:0"), number, ["sample"], StartOptions())
            except HostError as error:
                os.write(2, f"{error}\n".encode())

    async def start() -> None:
        with anyio.move_on_after(after_s):
            async with anyio.create_task_group() as group:
                for number in range(PLUGINS):
                    group.start_soon(bring_up, number)

    return forked(start)


def forked(main: "Callable[[], object]", kill_when: Callable[[], None] | None = None) -> "tuple[int, float]":
    """Run `main` in a fork; its wait status and its time in seconds."""
    begin_s = time.monotonic()
    host = os.fork()
    if host == 0:
        uvloop.run(main())  # type: ignore[arg-type]  # an async function
        os._exit(0)
    if kill_when is not None:
        kill_when()
        os.kill(host, signal.SIGKILL)
    _, status = os.waitpid(host, 0)
    return status, time.monotonic() - begin_s


def run(kind: str, environment: str, stage0: str, rounds: str, records: str = "") -> None:
    """All rounds."""
    chance = random.Random(9)
    act = {"killed": killed, "cancelled": cancelled}[kind]
    found = [act(environment, stage0, records, chance) for _ in range(int(rounds))]
    told = {"statuses": [status for status, _ in found], "times_s": [time_s for _, time_s in found]}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    run(*sys.argv[1:])
