"""What is lent to plugins: to each its own, to all processes of one the same, to a process only what was granted."""

from collections.abc import Sequence

from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState
from hotbay.datalayer.endpoint_rows import wire_row
from hotbay.rpc.host_calls import HostCall
from hotbay.rpc.host_services import HostLender
from hotbay_sdk.protocol import CallError, ErrorCode, Method, Value

A = EndpointMetadata("default/a", "a", "10.0.0.1", 8000, labels={"role": "decode"}, state=EndpointState.CORDONED)


class Bench:
    """A lender, and what it was told."""

    def __init__(self, storage_bytes: int = 100) -> None:
        self.counted: list[tuple[str, str, float, dict[str, str]]] = []
        self.recycled: list[tuple[str, str]] = []
        self.lender = HostLender(
            count=lambda plugin, name, amount, labels: self.counted.append((plugin, name, amount, dict(labels))),
            endpoints=lambda: [wire_row(A)],
            now=lambda: 1.0,
            wall=lambda: 1.5e9,
            entropy=bytes,
            storage_bytes=storage_bytes,
        )

    def process(self, plugin: str, *granted: str, number: int = 1):
        label = f"{plugin}#{number}"
        serve = self.lender.serve(plugin, label, granted, lambda reason: self.recycled.append((label, reason)))

        def ask(method: Method, *args: Value) -> object:
            answers: list[object] = []

            def answer(call: HostCall, outcome: object, descriptors: Sequence[int]) -> None:
                answers.append(outcome)

            serve(HostCall(2, method, args, parent=0, deadline_s=2.0, answer=answer))
            return answers[0]

        return ask


def test_store_is_one_for_all_processes_of_a_plugin_and_no_other_plugin_sees_it() -> None:
    bench = Bench()
    first, second = bench.process("p", "storage"), bench.process("p", "storage", number=2)
    assert first(Method.STORAGE_PUT, "k", b"v") is None
    assert second(Method.STORAGE_GET, "k") == b"v"
    for other in ("p/key", "q"):
        assert bench.process(other, "storage")(Method.STORAGE_GET, "k") is None
    assert bench.lender.services("p") is bench.lender.services("p")


def test_quota_is_each_plugins_own() -> None:
    bench = Bench(storage_bytes=10)
    full = bench.process("p", "storage")
    assert full(Method.STORAGE_PUT, "k", bytes(9)) is None
    over = full(Method.STORAGE_PUT, "m", b"")
    assert isinstance(over, CallError)
    assert over.code is ErrorCode.RESOURCE_EXHAUSTED
    assert bench.process("q", "storage")(Method.STORAGE_PUT, "k", bytes(9)) is None


def test_counts_bear_the_plugins_name_and_recycling_is_the_processes_own() -> None:
    bench = Bench()
    for plugin, number in (("p", 1), ("p", 2), ("p/key", 3)):
        ask = bench.process(plugin, "metric", "recycle", number=number)
        assert ask(Method.METRIC, "blocks", 2, {"kind": "hit"}) is None
        assert ask(Method.RECYCLE, "leaks") is None
    assert [told[0] for told in bench.counted] == ["p", "p", "p/key"]
    assert bench.recycled == [("p#1", "leaks"), ("p#2", "leaks"), ("p/key#3", "leaks")]


def test_endpoints_are_what_the_host_knows() -> None:
    [row] = bench_rows = Bench().process("p", "endpoints")(Method.ENDPOINTS)  # type: ignore[misc]
    assert len(bench_rows) == 1
    assert row == {
        "id": "default/a",
        "name": "a",
        "address": "10.0.0.1",
        "port": 8000,
        "scheme": "http",
        "labels": {"role": "decode"},
        "state": "cordoned",
        "weight": 1.0,
    }


def test_clock_and_entropy_need_no_grant() -> None:
    ask = Bench().process("p")
    assert (ask(Method.NOW), ask(Method.RANDOM, 3)) == (1.5e9, bytes(3))


def test_refusals_say_what_to_do() -> None:
    bench = Bench()
    dialled = bench.process("p", "dial", "secret")(Method.DIAL, "db", 5432)
    secret = bench.process("p", "dial", "secret")(Method.SECRET, "token")
    stored = bench.process("p/key", "metric")(Method.STORAGE_GET, "k")
    for answer, text in (
        (dialled, "connect from the plugin"),
        (secret, "among its parameters"),
        # Grants are a plugin's, not a routine's.
        (stored, "`hotbay grant p metric storage`"),
    ):
        assert isinstance(answer, CallError)
        assert answer.code is ErrorCode.UNAVAILABLE
        assert text in answer.message
