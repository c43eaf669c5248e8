"""What is shown of states: of which refs, what stands in the place of what cannot be shown, and how much at most."""

from types import SimpleNamespace

import pytest
from hotbay.errors import InputError, PluginFault
from hotbay.rollout import dumping
from hotbay.rollout.dumping import StateDumps
from hotbay.rollout.refs import RefSpec
from hotbay_sdk.protocol import Method, TypeDeclaration

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Client:
    def __init__(self, states):
        self.states = states

    async def control_call(self, method, args, *, deadline_s, reply_limit_bytes):
        assert (method, deadline_s) == (Method.DUMP_STATE, 1.0)
        assert reply_limit_bytes >= 256 * 1024
        state = self.states[tuple(args[0])]
        if isinstance(state, Exception):
            raise state
        return state


def spec(name, type_name="shows"):
    return RefSpec(name, type_name, {})


class Deployment:
    """Three plugins: one that runs, one that does not, and the host's own."""

    wanted = ("up", "down")
    scheduling = SimpleNamespace(refs=(SimpleNamespace(name="best", type="max-score-picker", plugin_id=None),))

    def __init__(self, **states):
        names = [*states, "mute"]
        types = {"shows": TypeDeclaration("shows", ("dump_state",)), "mute": TypeDeclaration("mute", ("score",))}
        handles = {name: at for at, name in enumerate(names)}
        client = Client({(7, handles[name]): state for name, state in states.items()})
        self._live = SimpleNamespace(number=7, types=types, handles=handles, client=client)
        self._refs = {
            "up": [*(spec(name) for name in states), spec("mute", "mute"), spec("new")],
            "down": [spec("away")],
        }

    def live(self, plugin):
        return self._live if plugin == "up" else None

    def refs_of(self, plugin):
        return self._refs[plugin]


def by_ref(page):
    return {row["ref"]: row.get("state", row.get("error", {}).get("code")) for row in page["plugins"]}


HOST = {"in-flight": lambda: {"total": 0}}


async def test_all_that_show_something_are_shown_and_what_fails_says_so():
    dumps = StateDumps(Deployment(a={"x": 1}, b=PluginFault("PLUGIN_ERROR", "raised")), HOST)
    page = await dumps.dump(None)
    assert by_ref(page) == {"a": {"x": 1}, "b": "PLUGIN_ERROR", "new": "UNAVAILABLE", "away": "UNAVAILABLE"}
    assert page["host"] == {"in-flight": {"total": 0}}
    assert page["plugins"][0] == {"ref": "a", "type": "shows", "plugin": "up", "generation": 7, "state": {"x": 1}}


@pytest.mark.parametrize(
    ("ref", "shown"),
    [("a", {"a": [1]}), ("mute", {"mute": "UNAVAILABLE"}), ("best", {"best": "UNAVAILABLE"}), ("in-flight", {})],
)
async def test_one_ref_alone(ref, shown):
    page = await StateDumps(Deployment(a=[1]), HOST).dump(ref)
    assert by_ref(page) == shown
    assert bool(page["host"]) == (ref == "in-flight")


async def test_unknown_ref_names_the_nearest():
    with pytest.raises(InputError, match="Did you mean 'mute'") as caught:
        await StateDumps(Deployment(a=[1]), HOST).dump("muto")
    assert caught.value.code == "NOT_FOUND"


async def test_states_that_have_no_room_say_so_and_those_that_have_are_shown(monkeypatch):
    monkeypatch.setattr(dumping, "MAX_BYTES", 1000)
    page = await StateDumps(Deployment(a="x" * 800, b="x" * 800, c="x" * 20), HOST).dump(None)
    found = by_ref(page)
    assert (found["a"], found["b"], found["c"]) == ("x" * 800, "RESOURCE_EXHAUSTED", "x" * 20)


async def test_ref_that_a_reload_drops_while_others_are_asked_is_asked_as_it_was(monkeypatch):
    monkeypatch.setattr(dumping, "_ASKED_AT_ONCE", 1)
    deployment = Deployment(a=1, b=2)
    live = deployment.live("up")
    ask = live.client.control_call

    async def reload_meanwhile(*given, **options):
        live.handles.pop("b", None)
        return await ask(*given, **options)

    live.client.control_call = reload_meanwhile
    page = await StateDumps(deployment, HOST).dump(None)
    assert by_ref(page) == {"a": 1, "b": 2, "new": "UNAVAILABLE", "away": "UNAVAILABLE"}
