"""Rules of stopping (protocol: Liveness and stop)."""

import signal
from typing import Final

import anyio

from hotbay.conformance.calls import UNKNOWN_METHOD, Shape
from hotbay.conformance.link import Link
from hotbay.conformance.peer import LONG_US, Conversation
from hotbay.conformance.stage import Rule, Stage
from hotbay.conformance.verdict import expect

__all__ = ["RULES"]

IN_FLIGHT: Final = 32
_CALLS_AT_A_TIME: Final = 64


async def goaway_drains(stage: Stage) -> None:
    talk = await stage.talk()
    probe = await talk.probe()
    made = [talk.call(probe, Shape()) for _ in range(IN_FLIGHT)]
    await talk.peer.calls.write(b"".join(frame for _, frame in made))
    await _say_goaway(talk)
    for stream, _ in made:
        probe.check(await talk.peer.calls.answer(stream), Shape())
    await _exits_well(talk, "after its last answer")


async def goaway_ends_an_idle_peer(stage: Stage) -> None:
    talk = await stage.talk()
    await talk.still_serves()
    await _say_goaway(talk)
    await _exits_well(talk, "with nothing in flight")


async def _say_goaway(talk: Conversation) -> None:
    await talk.peer.control.write(talk.peer.control.connection.send_goaway("RETIRED", "conformance"))


async def _exits_well(talk: Conversation, when: str) -> None:
    ended = await talk.peer.exits()
    expect(ended.code == 0, f"GOAWAY {when}: expected exit status 0, found {ended}")


async def end_of_file_ends_an_idle_peer(stage: Stage) -> None:
    talk = await stage.talk()
    await talk.still_serves()
    talk.peer.child.control.close()
    await talk.peer.exits()


async def end_of_file_ends_a_stuck_peer(stage: Stage) -> None:
    talk = await stage.talk()
    await talk.probe()
    await _stuff(talk.peer.calls, stage.patience.quiet_s)
    talk.peer.child.control.close()
    await talk.peer.exits()


async def _stuff(link: Link, quiet_s: float) -> None:
    """Write calls, reading nothing, until the peer takes no more: it is stuck in writing answers.

    A handful at a time: a peer may read all that there is before it answers the first.
    """
    reading = True
    while reading:
        made = [
            link.connection.start_call(UNKNOWN_METHOD, [], deadline_us=LONG_US, reply_limit_bytes=1 << 20)
            for _ in range(_CALLS_AT_A_TIME)
        ]
        await link.write(b"".join(frame for _, frame in made))
        with anyio.move_on_after(quiet_s) as waited:
            await link.taken()
        reading = not waited.cancelled_caught


async def sigterm_ends_it(stage: Stage) -> None:
    talk = await stage.talk()
    await talk.still_serves()
    talk.peer.child.signal(signal.SIGTERM)
    await talk.peer.exits()


RULES: Final = (
    Rule("stop.drain", "GOAWAY lets calls in flight end, then the process exits with 0", goaway_drains),
    Rule("stop.idle", "GOAWAY ends an idle process with status 0", goaway_ends_an_idle_peer),
    Rule("stop.eof", "the end of the control link ends the process", end_of_file_ends_an_idle_peer),
    Rule("stop.stuck", "it does so whatever a handler is stuck in", end_of_file_ends_a_stuck_peer),
    Rule("stop.term", "SIGTERM ends the process", sigterm_ends_it),
)
