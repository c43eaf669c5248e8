"""Rules of calls that go on and tell what they find: `discover` and `source_watch` (protocol: The data layer, Data)."""

from collections.abc import Callable
from typing import Final

from hotbay_sdk.protocol import Value

from hotbay.conformance.calls import Shape
from hotbay.conformance.data_calls import DataProbe
from hotbay.conformance.frame_rules import pong
from hotbay.conformance.peer import Conversation
from hotbay.conformance.stage import Rule, Stage
from hotbay.conformance.telling import Telling
from hotbay.conformance.verdict import InapplicableError, expect

__all__ = ["RULES"]

POINTS: Final = ("discover", "watch")


async def _probes(talk: Conversation, *points: str) -> tuple[DataProbe, ...]:
    found = await talk.data_probes(*points)
    if not found:
        raise InapplicableError(f"no type of this package answers {' or '.join(points)}")
    return found


async def discoveries_tell_endpoints(stage: Stage) -> None:
    await _tells(stage, "discover", _names_an_endpoint)


async def watches_tell_objects(stage: Stage) -> None:
    await _tells(stage, "watch", _is_an_object)


async def _tells(stage: Stage, point: str, is_good: Callable[[dict[str, Value], DataProbe], bool]) -> None:
    talk = await stage.shared()
    for probe in await _probes(talk, point):
        told = await Telling.begin(talk, probe)
        await told.until_ready()
        await told.cancel()
        for record in told.records:
            match record:
                case ["ready"] | ["delete", str()]:
                    good = True
                case ["upsert", dict() as thing]:
                    good = is_good(thing, probe)
                case _:
                    good = False
            expect(good, f"{told.what}: a record is no upsert of its kind, delete of a name, or ready: {record!r:.200}")


def _names_an_endpoint(endpoint: dict[str, Value], _probe: DataProbe) -> bool:
    """Whether a host can tell which endpoint is meant: what else it lacks leaves the last good form of it in force."""
    return any(isinstance(endpoint.get(key), str) and endpoint[key] for key in ("id", "name"))


def _is_an_object(thing: dict[str, Value], probe: DataProbe) -> bool:
    metadata = thing.get("metadata")
    named = isinstance(metadata, dict) and isinstance(metadata.get("name"), str)
    version, kind = thing.get("apiVersion"), thing.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return False
    # Of the core group an object names the version alone.
    return named and f"object:{version}/{kind}" == probe.payload.replace("object:/", "object:")


async def data_comes_as_credit_allows(stage: Stage) -> None:
    talk = await stage.shared()
    for probe in await _probes(talk, *POINTS):
        told = await Telling.begin(talk, probe)
        # More than its first credit would be a violation, which the link notes.
        await talk.peer.control.unasked()
        await talk.peer.control.write(talk.peer.control.connection.send_ping(1))
        await pong(talk.peer.control, 1, f"while {told.what} waits for credit")
        await told.until_ready()
        await told.cancel()


async def ready_is_said(stage: Stage) -> None:
    talk = await stage.shared()
    for probe in await _probes(talk, *POINTS):
        told = await Telling.begin(talk, probe)
        await told.until_ready()
        await told.cancel()


async def others_are_served_beside_it(stage: Stage) -> None:
    talk = await stage.shared()
    probes = await _probes(talk, *POINTS)
    running = [await Telling.begin(talk, probe) for probe in probes]
    for told in running:
        await told.until_ready()
    link = talk.peer.control
    await link.write(link.connection.send_ping(1))
    await pong(link, 1, "while it is told what is found")
    await talk.ask(await talk.probe(), Shape())
    await talk.configure()
    for told in running:
        await told.cancel()


async def cancelled_runs_have_one_answer(stage: Stage) -> None:
    talk = await stage.shared()
    for probe in await _probes(talk, *POINTS):
        # At once, while it waits for credit, and when it has told everything.
        told = await Telling.begin(talk, probe)
        await told.cancel()
        told = await Telling.begin(talk, probe)
        await talk.peer.control.unasked()
        await told.cancel()
        told = await Telling.begin(talk, probe)
        await told.until_ready()
        await told.cancel()
        await talk.peer.control.unasked()
        await talk.still_serves()


async def every_run_tells_everything(stage: Stage) -> None:
    talk = await stage.shared()
    for probe in await _probes(talk, *POINTS):
        told: list[Telling] = []
        for _ in range(2):
            told.append(await Telling.begin(talk, probe))
            await told[-1].until_ready()
            await told[-1].cancel()
        before, after = (it.known for it in told)
        missing = ", ".join(sorted(before - after))[:300]
        expect(not missing, f"{told[0].what} was begun again, and left out what it had told before: {missing}")


async def goaway_ends_a_run(stage: Stage) -> None:
    talk = await stage.talk()
    for probe in await _probes(talk, *POINTS):
        await (await Telling.begin(talk, probe)).until_ready()
    await talk.peer.control.write(talk.peer.control.connection.send_goaway("RETIRED", "conformance"))
    ended = await talk.peer.exits()
    expect(ended.code == 0, f"GOAWAY while it tells what it finds: expected exit status 0, found {ended}")


RULES: Final = (
    Rule("discover.records", "what discover tells is upsert, delete and ready", discoveries_tell_endpoints),
    Rule("watch.records", "what source_watch tells are objects of its kind, and ready", watches_tell_objects),
    Rule(
        "runs.credit",
        "what a run tells comes as credit allows, and PING is answered meanwhile",
        data_comes_as_credit_allows,
    ),
    Rule("runs.ready", "a run says ready within 15 s", ready_is_said),
    Rule("runs.beside", "calls are answered while a run goes on", others_are_served_beside_it),
    Rule("runs.cancel", "a cancelled run gets one answer, within 10 s", cancelled_runs_have_one_answer),
    Rule("runs.again", "a run that is begun again tells everything again", every_run_tells_everything),
    Rule("runs.goaway", "GOAWAY ends a run, and the process exits with 0", goaway_ends_a_run),
)
