"""The golden area of shared columns, read by the SDK, by a host's ring, and by the program that docs/protocol.md shows."""

import json
import math
import mmap
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.rpc.memfd import SharedArea
from hotbay.scheduling.shared_view import Ring
from hotbay_sdk._areas import Area
from hotbay_sdk.protocol import MalformedMessageError
from hotbay_sdk.protocol.areas import ordering, plan_area, read_layout

VECTOR = json.loads((Path(__file__).parent / "vectors" / "areas" / "two_columns.json").read_text())
PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
READS = frozenset({"endpoint.waiting", "attribute.hits"})


def golden() -> bytearray:
    memory = bytearray(VECTOR["size_bytes"])
    for offset, text, _meaning in VECTOR["bytes"]:
        packed = bytes.fromhex(text)
        memory[offset : offset + len(packed)] = packed
    return memory


def expected(slot: dict[str, Any]) -> dict[str, list[float]]:
    return {name: [math.nan if v is None else v for v in slot[name]] for name in VECTOR["columns"]}


def test_the_head_of_an_area_is_written_as_the_vector_says() -> None:
    layout = plan_area(VECTOR["area"], VECTOR["columns"].items(), VECTOR["capacity"])
    assert layout.size_bytes == VECTOR["size_bytes"]
    assert layout.head().hex(" ") == bytes(golden()[: layout.slots_at]).hex(" ")
    assert read_layout(memoryview(layout.head() + bytes(layout.slots * layout.slot_bytes))) == layout


def test_a_hosts_ring_writes_the_area_of_the_vector() -> None:
    made: list[mmap.mmap] = []

    def make(name: str, size_bytes: int) -> SharedArea:
        made.append(mmap.mmap(-1, size_bytes))
        return SharedArea(made[0], -1)

    schema = (("endpoint.waiting", "endpoint.waiting", "f"), ("attribute.hits", "attribute.hits/i64", "q"))
    ring = Ring(VECTOR["area"], schema, VECTOR["capacity"], make)
    # The ring begins behind the slot that it takes for its newest: the last of the vector's goes around.
    order = []
    for slot in VECTOR["slots"]:
        figures = expected(slot)
        columns = {
            "endpoint.waiting": np.array(figures["endpoint.waiting"], np.float32),
            "attribute.hits": np.array(figures["attribute.hits/i64"], np.int64),
        }
        snapshot = SimpleNamespace(columns=columns, epoch=slot["stamp"], rows=slot["rows"])
        place = ring.place(cast("Snapshot", snapshot))
        assert place is not None
        assert place[1] == slot["stamp"]
        order.append(place[0])
    memory, slots_at, slot_bytes = bytes(made[0]), 384, 192
    assert memory[:slots_at] == golden()[:slots_at]
    for found, slot in zip(order, VECTOR["slots"], strict=True):
        begin, wanted = slots_at + found * slot_bytes, slots_at + slot["slot"] * slot_bytes
        assert memory[begin : begin + slot_bytes] == golden()[wanted : wanted + slot_bytes]


def reader_of_the_page() -> Callable[[Any, int, int, int], dict[str, Any] | None]:
    section = PAGE.read_text(encoding="utf-8").partition("## Shared snapshots")[2]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found.group(1), names)  # the documentation's program is what is tested
    return cast("Callable[[Any, int, int, int], dict[str, Any] | None]", names["read_slot"])


def by_the_sdk(memory: Any, slot: int, stamp: int, rows: int) -> dict[str, Any] | None:
    copied = Area(memoryview(memory)).copy(slot, stamp, READS, rows)
    if copied is None:
        return None
    return {name: memoryview(raw).cast(VECTOR["columns"][name]).tolist() for name, raw in copied.items()}  # type: ignore[call-overload]


@pytest.mark.parametrize("reader", [by_the_sdk, reader_of_the_page()], ids=["sdk, no numpy", "page, numpy"])
def test_the_slots_of_the_vector_are_read(reader: Callable[[Any, int, int, int], dict[str, Any] | None]) -> None:
    for slot in VECTOR["slots"]:
        found = reader(golden(), slot["slot"], slot["stamp"], slot["rows"])
        assert found is not None
        assert found.keys() == VECTOR["columns"].keys()
        for name, values in expected(slot).items():
            np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("reader", [by_the_sdk, reader_of_the_page()], ids=["sdk, no numpy", "page, numpy"])
@pytest.mark.parametrize(("slot", "stamp"), [(0, 7), (0, 9), (1, 8), (2, 1), (3, 9)])
def test_a_slot_with_another_stamp_is_not_read(
    reader: Callable[[Any, int, int, int], dict[str, Any] | None], slot: int, stamp: int
) -> None:
    assert reader(golden(), slot, stamp, 2) is None


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_there_is_an_order_for_every_machine(machine: str) -> None:
    order = ordering(machine)
    order()
    order()


@pytest.mark.parametrize(
    "broken", [b"", b"HOTBAYC1", b"HOTBAYC2" + bytes(1144), None], ids=["empty", "short", "magic", "cut"]
)
def test_what_is_no_area_is_refused(broken: bytes | None) -> None:
    memory = bytes(golden()[:-1]) if broken is None else broken
    with pytest.raises(MalformedMessageError):
        read_layout(memoryview(memory))
