"""Cordon, uncordon and weight by command: which endpoints, what is kept, and what the next host obeys."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from hotbay.datalayer.attributes import AttributeValue, DynamicAttribute
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState
from hotbay.datalayer.endpoint import Metrics as Figures
from hotbay.datalayer.health.reports import Attempt
from hotbay.datalayer.health.watch import HealthWatch
from hotbay.datalayer.operations.commands import EndpointCommands
from hotbay.datalayer.operations.overrides import OverrideFile
from hotbay.datalayer.operator_labels import STATE_LABEL, WEIGHT_LABEL
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import CapacityError, InputError, Problem
from hotbay.observe.metrics import Metrics
from hotbay.status import StatusPage

pytestmark = pytest.mark.anyio

ME = "operator"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Desk:
    """A store of three endpoints with commands over a state directory."""

    def __init__(self, root: Path) -> None:
        self.store = EndpointStore()
        self.health = HealthWatch(self.store, Metrics())
        self.commands = EndpointCommands(self.store, self.health, OverrideFile(root), wall=lambda: 1_760_000_000.0)

    def discover(self, *names: str) -> None:
        for number, name in enumerate(names or ("a", "b", "c")):
            zone = {"zone": "x" if name in "ab" else "y"}
            self.store.upsert(EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000 + number, labels=zone))

    def live(self) -> set[str]:
        snapshot = self.store.publish(self.store.snapshot.at + 1.0)
        return {one.removeprefix("default/") for one, live in zip(snapshot.ids, snapshot.live, strict=True) if live}

    def weight(self, name: str) -> float:
        endpoint = self.store.get(f"default/{name}")
        assert endpoint is not None
        return endpoint.weight

    def fail(self, name: str, now: float) -> None:
        """Let requests fail there until it is out at `now`, or would be."""
        self.health.tick(now - 0.5)
        for _ in range(5):
            self.health.ended(f"default/{name}", self.health.begin(f"default/{name}"), Attempt.UNREACHABLE)
        self.health.tick(now)

    async def states(self) -> dict[str, object]:
        """The words by name, of the page of endpoints; the status has the same ones."""
        status = StatusPage(self.store, Metrics(), isolation="none")
        status.health = self.health
        shown = status.render((), ())["endpoints"]
        rows = (await self.commands.endpoints())["endpoints"]
        assert isinstance(shown, list)
        assert isinstance(rows, list)
        told = {row["id"].removeprefix("default/"): row["state"] for row in rows}
        assert {row["id"].removeprefix("default/"): row["state"] for row in shown} == told
        return told

    async def row(self, name: str) -> dict[str, object]:
        page = await self.commands.endpoints()
        (row,) = [one for one in page["endpoints"] if one["id"] == f"default/{name}"]
        return dict(row)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.discover()
    return desk


async def test_cordoned_by_id_name_or_label_is_not_live(desk: Desk) -> None:
    await desk.commands.cordon(["default/a"], None, ME)
    assert desk.live() == {"b", "c"}
    await desk.commands.cordon(["b", "default/b"], None, ME)
    assert desk.live() == {"c"}
    page = await desk.commands.uncordon([], "zone=x", ME)
    assert desk.live() == {"a", "b", "c"}
    assert [row["id"] for row in page["endpoints"]] == ["default/a", "default/b"]


async def test_weight_is_a_number_or_what_discovery_says(desk: Desk) -> None:
    await desk.commands.weigh(["a"], None, "0.5", ME)
    assert desk.weight("a") == 0.5
    await desk.commands.cordon(["a"], None, ME)
    await desk.commands.weigh(["a"], None, "default", ME)
    assert (desk.weight("a"), desk.live()) == (1.0, {"b", "c"})


@pytest.mark.parametrize("weight", ["1.1", "-0.1", "nan", "half", ""])
async def test_what_is_no_weight_changes_nothing(desk: Desk, weight: str) -> None:
    with pytest.raises(InputError, match="not a weight"):
        await desk.commands.weigh(["a"], None, weight, ME)
    assert desk.weight("a") == 1.0


@pytest.mark.parametrize(
    ("ids", "selector", "code", "told"),
    [
        (["aa"], None, "UNKNOWN_ENDPOINT", "did you mean"),
        (["zzz"], None, "UNKNOWN_ENDPOINT", "hotbay endpoints"),
        (["a", "zzz"], None, "UNKNOWN_ENDPOINT", "zzz"),
        ([], "zone=z", "UNKNOWN_ENDPOINT", "no endpoint has labels"),
        ([], "zone in (x)", "CONFIG_INVALID", "not a label selector"),
        ([], None, "CONFIG_INVALID", "by one label selector"),
        (["a"], "zone=x", "CONFIG_INVALID", "by one label selector"),
    ],
)
async def test_endpoint_that_is_not_clear_changes_nothing(
    desk: Desk, ids: list[str], selector: str | None, code: str, told: str
) -> None:
    with pytest.raises(InputError, match=told) as caught:
        await desk.commands.cordon(ids, selector, ME)
    assert caught.value.code == code
    assert desk.live() == {"a", "b", "c"}


@pytest.mark.parametrize(("known", "guesses"), [(500, 3), (501, 0)])
async def test_the_nearest_name_is_looked_for_among_so_many_only(tmp_path: Path, known: int, guesses: int) -> None:
    desk = Desk(tmp_path)
    desk.discover(*(f"server-{number}" for number in range(known)))
    with pytest.raises(InputError) as caught:
        await desk.commands.cordon([f"servr-{number}" for number in range(5)], None, ME)
    assert len(caught.value.problems) == 5
    assert sum("did you mean" in problem.hint for problem in caught.value.problems) == guesses


async def test_name_of_two_namespaces_is_not_clear(desk: Desk) -> None:
    desk.store.upsert(EndpointMetadata("other/a", "a", "10.0.0.9", 1))
    with pytest.raises(InputError, match="default/a, other/a"):
        await desk.commands.cordon(["a"], None, ME)


async def test_next_host_obeys_before_its_first_pick(desk: Desk, tmp_path: Path) -> None:
    await desk.commands.cordon(["a"], None, ME)
    await desk.commands.weigh(["b"], None, "0.25", ME)
    successor = Desk(tmp_path)
    await successor.commands.load()
    successor.discover()
    assert successor.live() == {"b", "c"}
    assert successor.weight("b") == 0.25
    await successor.commands.uncordon(["a"], None, ME)
    third = Desk(tmp_path)
    await third.commands.load()
    third.discover()
    assert third.live() == {"a", "b", "c"}


async def test_word_about_an_endpoint_that_is_gone_is_kept_shown_and_taken_back(desk: Desk) -> None:
    await desk.commands.cordon(["a"], None, ME)
    desk.store.delete("default/a")
    page = await desk.commands.endpoints()
    assert page["absent"] == [{"id": "default/a", "state": "cordoned", "weight": None, "who": ME}]
    desk.discover("a")
    assert desk.live() == {"b", "c"}
    desk.store.delete("default/a")
    await desk.commands.uncordon(["a"], None, ME)
    desk.discover("a")
    assert desk.live() == {"a", "b", "c"}


async def test_uncordon_that_goes_over_a_file_holds_when_it_is_said_again_while_the_endpoint_is_gone(
    desk: Desk,
) -> None:
    cordoned = EndpointMetadata("default/a", "a", "10.0.0.1", 8000, state=EndpointState.CORDONED)
    desk.store.upsert(cordoned)
    await desk.commands.uncordon(["a"], None, ME)
    desk.store.delete("default/a")
    await desk.commands.uncordon(["a"], None, ME)
    (absent,) = (await desk.commands.endpoints())["absent"]
    assert (absent["id"], absent["state"]) == ("default/a", "active")
    desk.store.upsert(cordoned)
    assert desk.live() == {"a", "b", "c"}
    # It is taken off the list by taking its cordon back.
    desk.store.delete("default/a")
    await desk.commands.cordon(["a"], None, ME)
    await desk.commands.uncordon(["a"], None, ME)
    assert (await desk.commands.endpoints())["absent"] == []


async def test_endpoint_that_is_removed_is_shown_until_its_last_request_has_ended(desk: Desk) -> None:
    ledger = desk.store.ledger
    for _ in range(2):
        ledger.started("default/a")
    for name in ("a", "b"):
        desk.store.delete(f"default/{name}")
    page = await desk.commands.endpoints()
    assert [row["id"] for row in page["endpoints"]] == ["default/c"]
    (row,) = page["leaving"]
    assert (row["id"], row["state"], row["in_flight"], row["labels"]) == ("default/a", "leaving", 2, {"zone": "x"})
    # It may be named like any other, as by a drain that begins too late.
    (said,) = (await desk.commands.cordon(["a"], None, ME))["endpoints"]
    assert said == {"id": "default/a", "state": None, "weight": None, "in_flight": 2}
    ledger.finished("default/a")
    assert (await desk.commands.endpoints())["leaving"][0]["in_flight"] == 1
    ledger.finished("default/a")
    assert (await desk.commands.endpoints())["leaving"] == []


async def test_endpoint_that_comes_back_leaves_no_more(desk: Desk) -> None:
    desk.store.ledger.started("default/a")
    desk.store.delete("default/a")
    desk.discover("a")
    page = await desk.commands.endpoints()
    assert (page["leaving"], len(page["endpoints"])) == ([], 3)
    assert (await desk.row("a"))["in_flight"] == 1


async def test_those_that_left_are_forgotten_though_nobody_looks(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    ledger = desk.store.ledger
    for number in range(1000):
        desk.discover(f"e{number}")
        ledger.started(f"default/e{number}")
        desk.store.delete(f"default/e{number}")
        if number % 100:
            ledger.finished(f"default/e{number}")
    assert len(desk.commands._left) < 100
    assert len((await desk.commands.endpoints())["leaving"]) == 10


async def test_uncordon_goes_over_a_file_or_label_that_cordons(desk: Desk) -> None:
    labels = {STATE_LABEL: "cordoned"}
    desk.store.upsert(EndpointMetadata("default/a", "a", "10.0.0.1", 8000, labels=labels))
    desk.store.upsert(EndpointMetadata("default/b", "b", "10.0.0.1", 8001, state=EndpointState.CORDONED))
    assert desk.live() == {"c"}
    await desk.commands.uncordon(["a", "b"], None, ME)
    assert desk.live() == {"a", "b", "c"}
    await desk.commands.cordon(["a"], None, ME)
    assert desk.live() == {"b", "c"}


async def test_uncordon_of_one_that_nothing_else_cordons_leaves_no_word(desk: Desk) -> None:
    await desk.commands.cordon(["a"], None, ME)
    await desk.commands.uncordon(["a"], None, ME)
    desk.store.upsert(EndpointMetadata("default/a", "a", "10.0.0.1", 8000, state=EndpointState.CORDONED))
    assert desk.live() == {"b", "c"}


async def test_state_directory_that_cannot_be_written_changes_nothing(desk: Desk, tmp_path: Path) -> None:
    await anyio.Path(tmp_path).rmdir()
    with pytest.raises(CapacityError, match=r"endpoints\.json"):
        await desk.commands.cordon(["a"], None, ME)
    assert desk.live() == {"a", "b", "c"}


async def test_commands_at_the_same_time_lose_nothing(desk: Desk, tmp_path: Path) -> None:
    async with anyio.create_task_group() as group:
        for name in "abc":
            group.start_soon(desk.commands.cordon, [name], None, ME)
            group.start_soon(desk.commands.weigh, [name], None, "0.5", ME)
    successor = Desk(tmp_path)
    await successor.commands.load()
    successor.discover()
    assert successor.live() == set()
    assert {successor.weight(name) for name in "abc"} == {0.5}


async def test_damaged_file_stops_a_start(tmp_path: Path) -> None:
    (tmp_path / "endpoints.json").write_text("{")
    with pytest.raises(InputError, match=r"endpoints\.json"):
        await Desk(tmp_path).commands.load()


async def test_page_says_why_an_endpoint_gets_nothing(desk: Desk) -> None:
    await desk.commands.cordon(["c"], None, ME)
    desk.health.tick(1.0)
    for _ in range(5):
        desk.health.ended("default/a", desk.health.begin("default/a"), Attempt.UNREACHABLE)
    desk.health.tick(2.0)
    desk.store.ledger.started("default/a")
    desk.store.publish(2.0)
    row = await desk.row("a")
    assert {name: row[name] for name in ("state", "admitted", "phase", "why", "healthy", "in_flight")} == {
        "state": "ejected", "admitted": False, "phase": "ejected", "why": "unreachable", "healthy": 0.0, "in_flight": 1
    }  # fmt: skip
    assert row["retry_in_s"] == 30.0
    row = await desk.row("b")
    assert (row["admitted"], row["why"], row["waiting"], row["age_s"], row["stale"]) == (True, None, None, None, [])
    assert (row["retry_in_s"], row["said"]) == (None, None)
    row = await desk.row("c")
    assert (row["state"], row["said"]["who"], row["said"]["state"]) == ("cordoned", ME, "cordoned")


async def test_status_and_endpoints_have_one_word_for_a_state(desk: Desk) -> None:
    assert await desk.states() == {"a": "active", "b": "active", "c": "active"}
    desk.fail("a", 2.0)
    assert await desk.states() == {"a": "ejected", "b": "active", "c": "active"}
    desk.health.tick(33.0)
    assert (await desk.states())["a"] == "half-open"
    assert desk.health.probe() == "default/a"
    assert (await desk.states())["a"] == "probing"
    await desk.commands.cordon(["c"], None, ME)
    assert (await desk.states())["c"] == "cordoned"
    desk.store.ledger.started("default/c")
    assert (await desk.states())["c"] == "draining"


async def test_one_that_should_be_out_and_gets_requests_is_kept(desk: Desk) -> None:
    desk.fail("a", 2.0)
    desk.fail("b", 3.0)
    assert await desk.states() == {"a": "ejected", "b": "kept", "c": "active"}
    assert ((await desk.row("b"))["phase"], (await desk.row("b"))["why"]) == ("admitted", "unreachable")
    # Nobody else is left: what was out gets requests again.
    desk.store.delete("default/b")
    desk.store.delete("default/c")
    desk.health.tick(4.0)
    assert await desk.states() == {"a": "kept"}
    row = await desk.row("a")
    assert (row["phase"], row["admitted"], row["why"]) == ("ejected", True, "unreachable")


async def test_page_says_who_cordons(desk: Desk) -> None:
    labels = {STATE_LABEL: "cordoned"}
    desk.store.upsert(EndpointMetadata("default/a", "a", "10.0.0.1", 8000, labels=labels))
    desk.store.upsert(EndpointMetadata("default/b", "b", "10.0.0.1", 8001, state=EndpointState.CORDONED))
    assert [(await desk.row(name))["cordoned_by"] for name in "abc"] == ["label", "discovery", None]
    await desk.commands.cordon(["a", "c"], None, ME)
    await desk.commands.uncordon(["b"], None, ME)
    assert [(await desk.row(name))["cordoned_by"] for name in "abc"] == ["command", None, "command"]


async def test_endpoints_stand_by_id(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.discover("b", "c", "a")
    assert list(await desk.states()) == ["a", "b", "c"]


async def test_page_has_attributes_as_far_as_there_is_room(desk: Desk) -> None:
    endpoint = desk.store.endpoint("default/a")
    assert endpoint is not None
    values: dict[str, AttributeValue | None] = {"models": [{"id": "m"}], "raw": b"\xff\xff", "share": 0.5, "text": "x"}
    desk.store.put_attributes("default/a", values, 1.0)
    endpoint.attributes.put("now", DynamicAttribute(lambda: 1))
    assert (await desk.row("a"))["attributes"] == {
        "models": [{"id": "m"}], "now": "(asked for at each reading)", "raw": "(2 bytes)", "share": 0.5, "text": "x",
    }  # fmt: skip
    assert (await desk.row("b"))["attributes"] == {}
    desk.store.put_attributes("default/b", {"a": "x" * 2047, "b": "yy", "c": "z", "d": 1, "e": ""}, 1.0)
    assert (await desk.row("b"))["attributes"] == {"a": "x" * 2047, "b": "(2 bytes)", "c": "z", "d": 1, "e": ""}


@pytest.mark.parametrize(("count", "more"), [(32, {}), (33, {"(more)": 1}), (40, {"(more)": 8})])
async def test_page_has_so_many_attributes(desk: Desk, count: int, more: dict[str, int]) -> None:
    desk.store.put_attributes("default/a", {f"n{number:02}": number for number in range(count)}, 1.0)
    assert (await desk.row("a"))["attributes"] == {f"n{number:02}": number for number in range(32)} | more


@dataclass
class Discovery:
    """One that waits, and refused something."""

    not_ready: Sequence[str] = ("gpus has not told its endpoints yet \udcff",)
    problems: Sequence[Problem] = (Problem("ADDRESS_REFUSED", "no"),)


async def test_page_says_what_discovery_waits_for(desk: Desk) -> None:
    assert (await desk.commands.endpoints())["discovery"] == {"waits": [], "problems": 0}
    desk.commands.discovery = Discovery
    told = {"waits": ["gpus has not told its endpoints yet \\udcff"], "problems": 1}
    assert (await desk.commands.endpoints())["discovery"] == told


async def test_page_says_which_figures_are_stale_and_whether_scrapes_fail_now(desk: Desk) -> None:
    desk.store.update_metrics("default/b", Figures(waiting=1.0, max_active_models=4.0), 1.0)
    desk.store.update_metrics("default/b", Figures(running=1.0), 4.0)
    for _ in range(2):
        desk.store.record_scrape_failure("default/b", "timeout")
    desk.store.publish(5.0)
    row = await desk.row("b")
    assert (row["stale"], row["age_s"], row["waiting"], row["running"]) == (["waiting", "lora"], 4.0, None, 1.0)
    assert (row["scrape_errors"], row["scrapes_failed_in_a_row"]) == (2, 2)
    # Adapters age beside the others, and are told once they are stale.
    desk.store.update_metrics("default/b", Figures(waiting=1.0, running=1.0), 5.0)
    desk.store.publish(5.5)
    row = await desk.row("b")
    assert (row["stale"], row["age_s"]) == (["lora"], 4.5)
    desk.store.update_metrics("default/b", Figures(waiting=1.0), 5.0)
    assert (await desk.row("b"))["scrapes_failed_in_a_row"] == 0


async def test_page_says_which_label_is_ignored(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.store.upsert(EndpointMetadata("default/d", "d", "10.0.0.1", 9, labels={WEIGHT_LABEL: "much"}))
    (problem,) = (await desk.row("d"))["problems"]
    assert "expected a number from 0 to 1, found 'much'" in problem
    assert "endpoint_label_ignored id=default/d" in caplog.text
