"""The fleet in a process of its own: simulated servers with prefix caches, on free ports of the loopback.

`python -m benchmarks.routing.fleet SPEED SEED` prints one line of JSON with the ports, and serves until its standard input
ends: whoever started it need not find it to end it.
"""

import asyncio
import json
import sys
from typing import Final

from hotbay.sim.config import SimConfig
from hotbay.sim.sequences import EngineLimits
from hotbay.sim.server import SimServer
from hotbay.sim.timing import Timing

__all__ = ["MODEL", "SERVERS", "TIMING"]

MODEL: Final = "sim"
SERVERS: Final = 8
TIMING: Final = Timing(base_s=0.16, prefill_token_s=16 / 8000, running_s=0.002)
"""A server that computes 8,000 tokens of prompts a second, and 10 ms a token of an answer: for tokens sixteen times as long."""
LIMITS: Final = EngineLimits(
    max_num_seqs=128, max_num_batched_tokens=512, max_model_len=16384, block_size=16, blocks_count=2048
)
"""In tokens of the study: steps of 8,192 tokens of the trace, and a cache of 524,288, of which half a million fit into the
memory beside the weights of a model of 8 billion parameters on a card of 80 GB."""


async def serve(speed: float, seed: int) -> None:
    """Run the servers until standard input ends."""
    servers = [
        SimServer(SimConfig(model=MODEL, limits=LIMITS, timing=TIMING, seed=seed * SERVERS + number, speed=speed))
        for number in range(SERVERS)
    ]
    for server in servers:
        await server.start()
    print(json.dumps([server.port for server in servers]), flush=True)  # noqa: T201  # what the parent reads
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for server in servers:
        await server.close()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), int(sys.argv[2])))
