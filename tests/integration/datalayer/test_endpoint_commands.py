"""Cordon, uncordon and weight by command: which endpoints, what is kept, and what the next host obeys."""

from pathlib import Path

import anyio
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState
from hotbay.datalayer.health.reports import Attempt
from hotbay.datalayer.health.watch import HealthWatch
from hotbay.datalayer.operations.commands import EndpointCommands
from hotbay.datalayer.operations.overrides import OverrideFile
from hotbay.datalayer.operator_labels import STATE_LABEL, WEIGHT_LABEL
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import CapacityError, InputError
from hotbay.observe.metrics import Metrics

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
        "state": "active", "admitted": False, "phase": "ejected", "why": "unreachable", "healthy": 0.0, "in_flight": 1
    }  # fmt: skip
    row = await desk.row("b")
    assert (row["admitted"], row["why"], row["waiting"], row["age_s"]) == (True, None, None, None)
    row = await desk.row("c")
    assert (row["state"], row["said_by"]) == ("cordoned", ME)


async def test_page_says_which_label_is_ignored(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.store.upsert(EndpointMetadata("default/d", "d", "10.0.0.1", 9, labels={WEIGHT_LABEL: "much"}))
    (problem,) = (await desk.row("d"))["problems"]
    assert "expected a number from 0 to 1, found 'much'" in problem
    assert "endpoint_label_ignored id=default/d" in caplog.text
