"""Rules of the start and of the links (protocol: Links, Start)."""

from typing import Final

import anyio
from hotbay_sdk.protocol import PROTOCOL_VERSION, GoAwayReceived, LogReceived
from hotbay_sdk.protocol.calls import SIDE_TABLES

from hotbay.conformance.calls import KNOWN_POINTS, Shape
from hotbay.conformance.peer import Peer, told
from hotbay.conformance.stage import Rule, Stage
from hotbay.conformance.verdict import InapplicableError, expect

__all__ = ["RULES"]

_UNSPOKEN_VERSION: Final = 99


async def waits_for_go(stage: Stage) -> None:
    peer = await stage.peer()
    await peer.arm()
    if peer.armed is None:
        raise InapplicableError("the command begins with HELLO: it is run without stage 0")
    await _silent(peer, "before GO")
    await peer.hello()


async def says_hello(stage: Stage) -> None:
    hello = await (await stage.peer()).hello()
    low, high = hello.protocol
    expect(low <= PROTOCOL_VERSION <= high, f"HELLO speaks protocol {low} to {high}, not {PROTOCOL_VERSION}")


async def waits_for_welcome(stage: Stage) -> None:
    peer = await stage.peer()
    await peer.hello()
    await _silent(peer, "before WELCOME")


async def _silent(peer: Peer, when: str) -> None:
    for link in peer.links:
        found = await link.unasked()
        expect(not found and not link.ended, f"{when} came {told(found[0]) if found else 'the end of a link'}")


async def reads_a_welcome_in_pieces(stage: Stage) -> None:
    peer = await stage.peer()
    await peer.hello()
    await peer.control.write_taken([bytes([byte]) for byte in peer.welcome()])
    await peer.ready()


async def declares_its_types(stage: Stage) -> None:
    talk = await stage.shared()
    declared = talk.declared
    names = [declaration.type for declaration in declared]
    expect(len(set(names)) == len(names), f"READY declares a type twice: {', '.join(sorted(names))[:300]}")
    for declaration in declared:
        unknown = sorted(set(declaration.points) - KNOWN_POINTS)
        expect(declaration.points, f"READY: type {declaration.type} answers no point")
        expect(not unknown, f"READY: type {declaration.type} answers unknown points: {', '.join(unknown)[:300]}")
        told = "side_tables" in talk.features or not SIDE_TABLES.keys() & set(declaration.reads)
        expect(
            told, f"READY: type {declaration.type} reads side tables, and HELLO does not name the feature side_tables"
        )


async def refuses_a_version(stage: Stage) -> None:
    peer = await stage.peer()
    await peer.hello()
    await peer.control.write_last(peer.welcome(_UNSPOKEN_VERSION))
    ended = await peer.exits()
    expect(ended.code != 0, f"WELCOME named protocol {_UNSPOKEN_VERSION}, and the process ended with status 0")


async def leaves_when_the_host_does(stage: Stage) -> None:
    peer = await stage.peer()
    await peer.hello()
    peer.child.control.close()
    await peer.exits()


async def keeps_output_off_the_links(stage: Stage) -> None:
    talk = await stage.talk()
    probe = await talk.probe()
    await talk.ask(probe, Shape())
    for link in talk.peer.links:
        strange = [event for event in await link.unasked() if not isinstance(event, LogReceived | GoAwayReceived)]
        expect(not strange, f"{told(strange[0]) if strange else ''} came on the {link.name} link, and nobody asked")


async def sends_no_descriptors(stage: Stage) -> None:
    talk = await stage.talk()
    await talk.still_serves()
    await talk.peer.control.unasked()
    found = talk.peer.control.descriptors
    expect(not found, f"{found} descriptors came on the control link: none is ever accepted from a plugin")


async def leaves_nothing_on_the_links(stage: Stage) -> None:
    talk = await stage.talk()
    await talk.still_serves()
    await talk.peer.control.write(talk.peer.control.connection.send_goaway("RETIRED", "conformance"))
    await talk.peer.exits()
    with anyio.move_on_after(stage.patience.exit_s):
        await talk.peer.calls.until_ended()
    # The host kills the process group with its leader; a program that left the group lives on with what it inherited.
    expect(talk.peer.calls.ended, "the process has ended, and a program that it started holds its call link open")


RULES: Final = (
    Rule("start.go", "no code of the package runs before GO", waits_for_go),
    Rule("start.hello", "HELLO comes in time and speaks this version", says_hello),
    Rule("start.welcome", "nothing comes between HELLO and WELCOME", waits_for_welcome),
    Rule("start.pieces", "WELCOME may come a byte at a time", reads_a_welcome_in_pieces),
    Rule("start.ready", "READY declares every type once, with points that exist", declares_its_types),
    Rule("start.version", "a version that the peer does not speak ends it with an error", refuses_a_version),
    Rule("start.eof", "the end of the control link during the start ends the process", leaves_when_the_host_does),
    Rule("links.output", "nothing but frames comes on the links, and nothing unasked", keeps_output_off_the_links),
    Rule("links.descriptors", "no descriptor comes from a plugin", sends_no_descriptors),
    Rule("links.exit", "nothing holds the links after the process ended", leaves_nothing_on_the_links),
)
