"""The samples of the data layer: what extractors make of data, and what discovery and sources tell of their directories."""

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginCallError, PluginHarness
from hypothesis import given
from hypothesis import strategies as st

SAMPLES = Path(__file__).resolve().parents[3] / "plugins" / "samples"


def load(name: str) -> ModuleType:
    module_name = f"hotbay_{name.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(module_name, SAMPLES / name / module_name / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


QUEUE, FILES, SOURCES = load("queue-time"), load("json-discovery"), load("file-sources")


def page(*cumulative: float, edges: tuple[str, ...] = ("0.5", "1.0", "+Inf")) -> dict[str, object]:
    series = [[{"le": edge, "model_name": "m"}, count] for edge, count in zip(edges, cumulative, strict=True)]
    return {QUEUE.BUCKETS: series}


# -- queue-time ----------------------------------------------------------------------------------


def test_median_is_of_what_a_page_adds_to_the_one_before() -> None:
    with PluginHarness(QUEUE.plugin) as harness:
        harness.configure("q", "queue-time-extractor")
        assert harness.extract("q", page(100, 100, 100)) == {"queue_time_p50": None}
        assert harness.extract("q", page(100, 104, 104)) == {"queue_time_p50": 0.75}
        assert harness.extract("q", page(100, 104, 104), {"id": "default/b"}) == {"queue_time_p50": None}
        # The engine began anew.
        assert harness.extract("q", page(1, 1, 1)) == {"queue_time_p50": None}
        assert harness.extract("q", {}) == {"queue_time_p50": None}


@pytest.mark.parametrize("window_s", [0.5, 3601])
def test_window_is_bounded(window_s: float) -> None:
    with PluginHarness(QUEUE.plugin) as harness, pytest.raises(ParameterError, match="1 to 3600"):
        harness.configure("q", "queue-time-extractor", {"window_s": window_s})


def test_what_is_older_than_the_window_does_not_count_and_is_not_kept() -> None:
    extractor = QUEUE.QueueTimeExtractor(None, QUEUE.Parameters(window_s=10))
    for second in range(100):
        fast = min(second, 50)
        found = extractor.median("a", {0.5: float(fast), 1.0: float(second), math.inf: float(second)}, float(second))
        assert len(extractor._pages["a"]) <= 12
    assert found == 0.75
    assert extractor.median("a", {0.5: 50.0, 1.0: 99.0, math.inf: 99.0}, 200.0) is None


def test_endpoints_that_are_kept_are_bounded() -> None:
    extractor = QUEUE.QueueTimeExtractor(None, QUEUE.Parameters())
    for n in range(QUEUE.MAX_ENDPOINTS + 5):
        extractor.median(str(n), {}, 0.0)
    assert len(extractor._pages) == QUEUE.MAX_ENDPOINTS
    assert "4" not in extractor._pages


@given(st.lists(st.floats(0, 100), min_size=1, max_size=200))
def test_quantile_lies_in_the_bucket_of_the_median(values: list[float]) -> None:
    edges = (1.0, 5.0, 20.0, 50.0, math.inf)
    found = QUEUE.quantile(0.5, {edge: float(sum(v <= edge for v in values)) for edge in edges})
    ordered = sorted(values)
    median = ordered[math.ceil(len(values) / 2) - 1]
    upper = next(edge for edge in edges if median <= edge)
    lower = max((edge for edge in edges if edge < upper), default=0.0)
    assert lower <= found <= (lower if math.isinf(upper) else upper)


# -- json-discovery ------------------------------------------------------------------------------

A: dict[str, Any] = {"address": "10.0.0.1", "port": 8000}


def write(folder: Path, name: str, entry: object) -> None:
    part = folder / f".{name}.part"
    part.write_text(json.dumps(entry) if not isinstance(entry, str) else entry)
    part.rename(folder / f"{name}.json")


def discover(folder: Path, *steps: Any) -> list[list[Any]]:
    with PluginHarness(FILES.plugin) as harness:
        harness.configure("d", "json-directory-discovery", {"path": str(folder)})
        return harness.discover("d", steps)


def test_directory_is_told_and_then_what_changes(tmp_path: Path) -> None:
    write(tmp_path, "b", A)
    write(tmp_path, "a", A)
    (tmp_path / "notes.txt").write_text("no server")
    told = discover(
        tmp_path,
        lambda: write(tmp_path, "a", {**A, "weight": 0.5}),
        lambda: (tmp_path / "b.json").unlink(),
        lambda: None,
    )
    assert told == [
        ["upsert", {**A, "id": "default/a"}],
        ["upsert", {**A, "id": "default/b"}],
        ["ready"],
        ["upsert", {**A, "weight": 0.5, "id": "default/a"}],
        ["delete", "default/b"],
    ]


def test_empty_directory_is_ready(tmp_path: Path) -> None:
    assert discover(tmp_path) == [["ready"]]


def test_file_that_cannot_be_read_is_there_all_the_same(tmp_path: Path) -> None:
    write(tmp_path, "a", "{")
    write(tmp_path, "b", [1])
    write(tmp_path, "c", {"labels": {"x": "y" * FILES.MAX_BYTES}})
    told = discover(tmp_path, lambda: write(tmp_path, "a", A))
    assert told == [
        ["upsert", {"id": "default/a"}],
        ["upsert", {"id": "default/b"}],
        ["upsert", {"id": "default/c"}],
        ["ready"],
        ["upsert", {**A, "id": "default/a"}],
    ]


def test_directory_that_cannot_be_listed_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "servers"
    told = discover(folder, folder.mkdir, lambda: write(folder, "a", A), lambda: folder.rename(tmp_path / "away"))
    assert told == [["ready"], ["upsert", {**A, "id": "default/a"}]]


@pytest.mark.parametrize("parameters", [{"path": "here"}, {"path": "/x", "interval_s": 0.01}, {}])
def test_parameters_are_checked(parameters: dict[str, object]) -> None:
    with PluginHarness(FILES.plugin) as harness, pytest.raises(ParameterError):
        harness.configure("d", "json-directory-discovery", parameters)


@pytest.mark.parametrize(
    "content",
    ['{"labels": {"a": "\\ud800"}}', "[" * 10_000, '{"port": 18446744073709551616}'],
)
def test_file_whose_content_cannot_cross_ends_no_run(tmp_path: Path, content: str) -> None:
    write(tmp_path, "a", content)
    write(tmp_path, "b", A)
    told = discover(tmp_path)
    assert [record[1]["id"] for record in told[:-1]] == ["default/a", "default/b"]
    assert told[-2:] == [["upsert", {**A, "id": "default/b"}], ["ready"]]


def test_file_whose_name_is_no_text_is_nobody(tmp_path: Path) -> None:
    with open(bytes(tmp_path) + b"/\xff.json", "w") as file:  # noqa: PTH123 - a name that is no text
        file.write("{}")
    assert discover(tmp_path) == [["ready"]]


# -- file-sources --------------------------------------------------------------------------------


def note(name: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": "samples.hotbay/v1", "kind": "ServerNote", "metadata": {"name": name}, "spec": spec}


def watch(folder: Path, *steps: Any) -> list[list[Any]]:
    with PluginHarness(SOURCES.plugin) as harness:
        harness.configure("w", "note-watch-source", {"path": str(folder)})
        return harness.watch("w", steps)


def test_notes_are_told_and_then_what_changes(tmp_path: Path) -> None:
    write(tmp_path, "b", {"rank": 1})
    write(tmp_path, "a", {"rank": 2})
    (tmp_path / "notes.txt").write_text("no note")
    told = watch(
        tmp_path, lambda: write(tmp_path, "a", {"rank": 3}), lambda: (tmp_path / "b.json").unlink(), lambda: None
    )
    assert told == [
        ["upsert", note("a", rank=2)],
        ["upsert", note("b", rank=1)],
        ["ready"],
        ["upsert", note("a", rank=3)],
        ["delete", "b"],
    ]


@pytest.mark.parametrize("content", ["{", "[1]", '{"a": "\\ud800"}', "[" * 10_000, '{"rank": 18446744073709551616}'])
def test_note_that_cannot_be_read_ends_no_run_and_stays_as_it_was_told(tmp_path: Path, content: str) -> None:
    write(tmp_path, "a", {"rank": 1})
    told = watch(
        tmp_path,
        lambda: write(tmp_path, "a", content),
        lambda: write(tmp_path, "b", content),
        lambda: write(tmp_path, "a", {"rank": 2}),
    )
    assert told == [["upsert", note("a", rank=1)], ["ready"], ["upsert", note("a", rank=2)]]


def test_directory_of_notes_that_cannot_be_listed_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    told = watch(folder, folder.mkdir, lambda: write(folder, "a", {}), lambda: folder.rename(tmp_path / "away"))
    assert told == [["ready"], ["upsert", note("a")]]


def test_note_is_an_attribute_of_its_server_until_it_goes() -> None:
    event = {"type": "add_or_update", "kind": "samples.hotbay/v1/ServerNote", "key": "a", "object": note("a", rank=7)}
    with PluginHarness(SOURCES.plugin) as harness:
        harness.configure("n", "note-extractor")
        assert harness.event_extract("n", event) == {"default/a": {"note_rank": 7, "note_text": None}}
        found = harness.event_extract("n", {**event, "type": "delete"})
        assert found == {"default/a": {"note_rank": None, "note_text": None}}


def test_status_is_the_file_of_the_endpoint(tmp_path: Path) -> None:
    write(tmp_path, "a", {"load": 0.5})
    with PluginHarness(SOURCES.plugin) as harness:
        harness.configure("s", "status-source", {"path": str(tmp_path)})
        harness.configure("e", "status-extractor")
        assert harness.extract("e", harness.poll("s")) == {"status_load": 0.5}
        with pytest.raises(PluginCallError, match="FileNotFoundError"):
            harness.poll("s", {"name": "b"})
