"""State of refs: its form, its versions, and what is refused."""

import struct
from collections.abc import Iterable, Iterator

import pytest
from hotbay_sdk import Plugin, Scorer
from hotbay_sdk._dispatch import Dispatcher
from hotbay_sdk._state import PIECE_BYTES, StateUnreadableError, read
from hotbay_sdk.protocol import CallError, ErrorCode
from hotbay_sdk.protocol.values import Encoder
from hotbay_sdk.testing import PluginCallError, PluginHarness
from hypothesis import given
from hypothesis import strategies as st

ENDPOINT = {"a": {}}


def record(value: object) -> bytes:
    body = Encoder().pack(value)
    return struct.pack(">I", len(body)) + body


HEAD = record({"type": "kept", "name": "ref", "version": 1})


def keeper(versions: tuple[int, ...] = (1,), **methods: object) -> Plugin:
    """A plugin whose type keeps bytes; `methods` replace its own."""
    plugin = Plugin("keeper")

    class Kept(Scorer):
        kept = b""

        def score(self, request, endpoint):
            return len(self.kept)

        def export_state(self, version: int) -> Iterable[bytes] | bytes:
            return self.kept

        def import_state(self, version: int, pieces: Iterator[bytes]) -> None:
            self.kept = b"".join(pieces)

    for name, method in methods.items():
        setattr(Kept, name, method)
    plugin.type("kept", state_versions=versions)(Kept)
    return plugin


def moved(plugin: Plugin, state: bytes) -> tuple[str | None, float]:
    """The outcome of a ref that begins with `state`, and how much it keeps."""
    with PluginHarness(plugin) as harness:
        harness.import_state(state)
        harness.configure("ref", "kept")
        return harness.state_of("ref"), harness.score("ref", ENDPOINT, raw=True)[0]["a"]


def exported(plugin: Plugin) -> bytes:
    with PluginHarness(plugin) as harness:
        harness.configure("ref", "kept")
        return harness.export_state()


@pytest.mark.parametrize("made", [b"abc", bytearray(b"abc"), [b"a", b"bc"], (memoryview(b"abc"),)])
def test_bytes_and_iterables_of_bytes_are_state(made: object) -> None:
    state = exported(keeper(export_state=lambda self, version: made))
    assert moved(keeper(), state) == ("imported", 3)


def test_long_pieces_are_cut_and_empty_ones_are_nothing() -> None:
    size = 3 * PIECE_BYTES + 1
    state = exported(keeper(export_state=lambda self, version: [b"", b"x" * size, b""]))
    (section,) = read(state).values()
    assert [len(piece) for piece in section.pieces] == [PIECE_BYTES] * 3 + [1]
    assert moved(keeper(), state) == ("imported", size)


def raising(self, *_):
    raise ValueError("no")


def half(self, version):
    yield b"abc"
    raise ValueError("no")


@pytest.mark.parametrize("export", [raising, half, lambda self, v: 7, lambda self, v: ["text"]])
def test_an_export_that_fails_leaves_no_state(export: object) -> None:
    plugin = keeper(export_state=export)
    with PluginHarness(plugin) as harness:
        harness.configure("ref", "kept")
        with pytest.raises(PluginCallError, match="ref: failed"):
            harness.export_state()


@pytest.mark.parametrize(
    ("plugin", "state", "outcome"),
    [
        (keeper(), HEAD + record(b"abc"), "cold: the predecessor's export broke off"),
        (keeper((2,)), HEAD + record(None), "cold: the predecessor's is of version 1"),
        (keeper(), b"", "cold: the predecessor left none for it"),
        (keeper(import_state=raising), HEAD + record(None), "cold: import_state raised ValueError: no"),
    ],
)
def test_state_that_is_not_taken_is_a_cold_start_with_the_reason(plugin: Plugin, state: bytes, outcome: str) -> None:
    assert moved(plugin, state) == (outcome, 0)


def test_a_spoilt_instance_is_closed_and_made_again() -> None:
    made: list[object] = []
    closed: list[object] = []

    def spoil(self, version, pieces):
        made.append(self)
        self.kept = b"spoilt"
        raise ValueError("no")

    plugin = keeper(import_state=spoil, close=lambda self: closed.append(self))
    with PluginHarness(plugin) as harness:
        harness.import_state(HEAD + record(None))
        harness.configure("ref", "kept")
        assert closed == made
        assert harness.score("ref", ENDPOINT, raw=True)[0]["a"] == 0


def test_state_is_for_the_first_refs_that_are_made() -> None:
    with PluginHarness(keeper()) as harness:
        harness.import_state(HEAD + record(b"abc") + record(None))
        harness.configure("ref", "kept")
        harness.configure("ref", "kept")
        assert harness.state_of("ref") is None
        assert harness.score("ref", ENDPOINT, raw=True)[0]["a"] == 0


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (b"\0\0\0", "ends within a length"),
        (b"\0\0\0\2x", "are left"),
        (b"\0\0\0\1\xc1", "not one msgpack value"),
        (record(b"abc"), "belongs to no ref"),
        (record(None), "belongs to no ref"),
        (HEAD + record(None) + record(b"x"), "belongs to no ref"),
        (HEAD + record(7), "of type int"),
        (record({"type": "kept", "name": "ref"}), "names its type"),
        (record({"type": "kept", "name": 7, "version": 1}), "names its type"),
    ],
)
def test_bytes_in_another_form_are_refused(state: bytes, reason: str) -> None:
    with pytest.raises(StateUnreadableError, match=reason):
        read(state)
    with PluginHarness(keeper()) as harness, pytest.raises(PluginCallError, match=reason):
        harness.import_state(state)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for state in (data, HEAD + data, HEAD + record(b"x") + data):
        try:
            read(state)
        except StateUnreadableError:
            continue


@pytest.mark.parametrize(
    ("args", "code"),
    [([], "PROTOCOL_VIOLATION"), (["1", None], "PROTOCOL_VIOLATION"), ([1, []], "PROTOCOL_VIOLATION")],
)
def test_a_call_in_another_form_is_refused(args: list, code: str) -> None:
    error = Dispatcher(generation=1).export_state(args, bytes, 1.0)
    assert isinstance(error, CallError)
    assert error.code == code


@pytest.mark.parametrize(("timeout_s", "code"), [(0.0, ErrorCode.DEADLINE_EXCEEDED), (60.0, None)])
def test_an_export_ends_at_its_deadline(timeout_s: float, code: ErrorCode | None) -> None:
    dispatcher = Dispatcher(generation=1)
    dispatcher.provide(keeper())
    create = [{"handle": [1, 1], "name": "ref", "type": "kept", "parameters": {}}]
    dispatcher.control_call(30, [{"create": create, "drop": []}])
    outcome = dispatcher.export_state([10**6, None], lambda data: None, timeout_s)
    assert (outcome.code if isinstance(outcome, CallError) else None) == code


@pytest.mark.parametrize(
    ("declaration", "methods", "text"),
    [
        ((1,), {"export_state": None}, "defines export_state and import_state"),
        ((), {}, "name its state_versions"),
        ((1,), {"export_state": "async"}, "is no async method"),
    ],
)
def test_declarations_of_state_are_checked(declaration: tuple[int, ...], methods: dict, text: str) -> None:
    async def export(self, version):
        return b""

    replaced = {name: export if method == "async" else method for name, method in methods.items()}
    with pytest.raises(TypeError, match=text):
        keeper(declaration, **replaced)
