"""A run of a discovery or a watch, as an author sees it: what is told, and what a host would not hear."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import pytest
from hotbay.authoring import telling
from hotbay.authoring.telling import Bound, Ran, Told, tell
from hotbay.errors import PluginFault
from hotbay.rpc.data import Flow
from hotbay.rpc.wire import Outcome
from hotbay_sdk.protocol import TypeDeclaration, Value
from hotbay_sdk.protocol.handshake import DataDeclaration
from hotbay_sdk.protocol.values import Encoder

pytestmark = pytest.mark.anyio

A = {"id": "default/a", "address": "10.0.0.1", "port": 8000}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": "default"}}
BRIEF = Bound(ready_within_s=0.01)


def records(*told: list[Value]) -> bytes:
    packed = map(Encoder().pack, told)
    return b"".join(struct.pack(">I", len(record)) + record for record in packed)


@dataclass
class Target:
    """A ref whose run tells `data` at once, and ends when it is told to, unless it is deaf; or by itself with `outcome`."""

    data: bytes
    outcome: tuple[Outcome, ...] = ()
    deaf: bool = False
    payload: str = ""
    credited: list[int] = field(default_factory=list)

    @property
    def declaration(self) -> TypeDeclaration:
        return TypeDeclaration("finding", ("discover", "watch"), data=DataDeclaration(self.payload))

    def begin_run(self, point: str, came: Callable[[], None], done: Callable[[Outcome], None]) -> Flow:
        def cancel() -> None:
            if not self.deaf:
                done(PluginFault("CANCELLED", "given up"))

        flow = Flow(1, came, self.credited.append, cancel)
        flow.add(self.data)
        for outcome in self.outcome:
            done(outcome)
        return flow


async def heard(target: Target, point: str = "discover", bound: Bound = BRIEF) -> tuple[Ran, list[Told]]:
    told: list[Told] = []
    ran = await tell(target, point, bound, lambda _, record: told.append(record))  # type: ignore[arg-type]  # stands for one
    return ran, told


async def test_a_run_is_heard_until_it_says_ready() -> None:
    target = Target(records(["upsert", A], ["ready"], ["delete", "default/a"]))
    ran, told = await heard(target)
    assert [(it.what, it.name, it.count) for it in told] == [("upsert", "default/a", 1), ("ready", "", 1)]
    assert told[0].where == "10.0.0.1:8000"
    assert ran.told == tuple(told)
    assert ran.ready_s is not None
    assert (ran.ended, ran.errors) == (False, ())
    assert target.credited == [len(target.data)]


async def test_who_follows_hears_what_comes_after_it() -> None:
    target = Target(records(["upsert", A], ["ready"], ["delete", "default/a"]))
    ran, told = await heard(target, bound=Bound(follow=True, for_s=0.01))
    assert [(it.what, it.count) for it in told] == [("upsert", 1), ("ready", 1), ("delete", 0)]
    assert ran.errors == ()


async def test_a_watch_tells_objects_by_their_keys() -> None:
    ran, told = await heard(Target(records(["upsert", POD], ["ready"]), payload="object:/v1/Pod"), "watch")
    assert [(it.what, it.name, it.thing) for it in told] == [("upsert", "default/pod", POD), ("ready", "", None)]
    assert ran.errors == ()


async def test_what_a_host_refuses_is_an_error_and_the_rest_is_heard() -> None:
    ran, told = await heard(Target(records(["upsert", A | {"address": "0.0.0.0"}], ["upsert", A], ["ready"])))
    assert [it.what for it in told] == ["refused", "upsert", "ready"]
    (error,) = ran.errors
    assert "address: expected no unspecified" in error.message
    assert error.hint


async def test_a_run_that_does_not_say_ready_is_an_error_that_says_what_to_do() -> None:
    ran, _ = await heard(Target(records(["upsert", A])))
    (error,) = ran.errors
    assert (error.code, error.message) == ("DEADLINE_EXCEEDED", "it did not say ready within 0.01 s")
    assert "notifier.ready()" in error.hint
    assert ran.ready_s is None


@pytest.mark.parametrize(
    ("outcome", "code"), [(None, "BAD_RESULT"), (PluginFault("PLUGIN_ERROR", "KeyError: 'x'"), "PLUGIN_ERROR")]
)
async def test_a_run_that_ends_before_it_says_ready_is_an_error(outcome: Outcome, code: str) -> None:
    ran, _ = await heard(Target(records(["upsert", A]), (outcome,)))
    assert [error.code for error in ran.errors] == [code]
    assert ran.ended


async def test_a_run_that_ends_by_itself_after_it_said_ready_is_none() -> None:
    ran, _ = await heard(Target(records(["upsert", A], ["ready"]), (None,)))
    assert (ran.ended, ran.errors) == (True, ())


@pytest.mark.parametrize("bound", [BRIEF, Bound(follow=True, for_s=10.0)])
async def test_what_is_no_record_ends_the_hearing(bound: Bound) -> None:
    first: list[list[Value]] = [["ready"]] if bound.follow else []
    ran, told = await heard(Target(records(*first, ["upsert", A], ["add", A], ["ready"])), bound=bound)
    assert [it.what for it in told] == [*(["ready"] if bound.follow else []), "upsert"]
    assert [error.code for error in ran.errors] == ["BAD_RESULT"]


async def test_a_run_that_does_not_end_when_it_is_over_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "ENDED_WITHIN_S", 0.01)
    with anyio.fail_after(10):
        ran, _ = await heard(Target(records(["ready"]), deaf=True))
    (error,) = ran.errors
    assert error.message == "it still went on 0.01 s after it was over"
    assert "notifier.wait" in error.hint


@pytest.mark.parametrize("payload", ["endpoint", "object:v1"])
async def test_a_watch_of_no_kind_of_objects_is_none(payload: str) -> None:
    with pytest.raises(PluginFault, match="payload"):
        await heard(Target(b"", payload=payload), "watch")
