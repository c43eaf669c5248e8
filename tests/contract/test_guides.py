"""The guides say what the code does: the author guide's examples run."""

import json
import math
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace

import click
import hotbay_sdk
import pytest
from hotbay.cli.call import call
from hotbay.cli.conformance import conformance
from hotbay.cli.new import new
from hotbay.cli.publish import publish
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.endpoint_rows import wire_row
from hotbay.datalayer.remote.wire_events import event_to_wire
from hotbay.datalayer.source import EndpointNews, EventType, ObjectEvent
from hotbay_sdk.protocol.calls import COLUMN_FORMATS, REQUEST_FIELDS
from hotbay_sdk.testing import PluginCallError, PluginHarness

ROOT = Path(__file__).parents[2]
SDK = {name: getattr(hotbay_sdk, name) for name in hotbay_sdk.__all__}
"""What an example that begins without imports is taken to have imported."""


def blocks(file: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / file).read_text(), re.MULTILINE | re.DOTALL)


def test_author_guide_example_gives_an_unknown_figure_a_meaning():
    (method,) = [block for block in blocks("docs/author-guide.md") if block.startswith("def score")]
    names: dict[str, object] = {"math": math, "Request": object, "Endpoint": object}
    exec(compile(method, "author-guide.md", "exec"), names)
    score, scorer = names["score"], SimpleNamespace(soft_limit=8)

    assert callable(score)
    figures = (math.nan, 0.0, 4.0, 16.0)
    assert [score(scorer, None, SimpleNamespace(waiting=figure)) for figure in figures] == [0.5, 1.0, 0.5, 0.0]


def test_author_guide_tests_pass_on_the_readme_plugin(monkeypatch: pytest.MonkeyPatch):
    (plugin,) = blocks("README.md")
    *_, tests = blocks("docs/author-guide.md")
    module = ModuleType("my_scorers")
    monkeypatch.setitem(sys.modules, "my_scorers", module)
    exec(compile(plugin, "README.md", "exec"), module.__dict__)
    names: dict[str, object] = {}
    exec(compile(tests, "author-guide.md", "exec"), names)
    found = [value for name, value in names.items() if name.startswith("test_")]

    assert len(found) == 2
    for test in found:
        assert callable(test)
        test()


def test_author_guide_example_of_state_is_taken_over():
    (state,) = [block for block in blocks("docs/author-guide.md") if "state_versions" in block]
    plugin = hotbay_sdk.Plugin("guide")
    names: dict[str, object] = {**SDK, "json": json, "Iterable": Iterable, "plugin": plugin}
    exec(compile(f"from __future__ import annotations\n{state}", "author-guide.md", "exec"), names)
    with PluginHarness(plugin) as old, PluginHarness(plugin) as new_one:
        old.configure("mine", "remembering-scorer")
        old.pre_request("mine", {"a": {}}, ["a"])
        new_one.import_state(old.export_state())
        new_one.configure("mine", "remembering-scorer")
        assert new_one.state_of("mine") == "imported"
        assert new_one.score("mine", {"a": {}, "b": {}}) == [{"a": 0.5, "b": 1.0}]


def test_author_guide_examples_of_side_tables_keep_the_same():
    plugin = hotbay_sdk.Plugin("guide")
    names: dict[str, object] = {**SDK, "plugin": plugin}
    examples = [block for block in blocks("docs/author-guide.md") if '"tier-filter' in block]
    for block in examples:
        exec(compile(f"from __future__ import annotations\n{block}", "author-guide.md", "exec"), names)
    assert len(examples) == len(plugin.declarations) == 2
    endpoints = {"a": {"labels": {"tier": "gold"}}, "b": {"labels": {"tier": "silver"}}, "c": {}}
    with PluginHarness(plugin) as harness:
        for declared in plugin.declarations:
            harness.configure("tier", declared.type)
            kept = harness.keep("tier", endpoints, [{"headers": {"x-tier": "gold"}}, {}])
            assert kept == [["a", "c"], ["a", "b", "c"]], declared.type


def example(name: str) -> hotbay_sdk.Plugin:
    """The plugin of one of the whole examples of extension points."""
    (block,) = [block for block in blocks("docs/author-guide.md") if f'plugin = Plugin("{name}")' in block]
    names: dict[str, object] = {}
    exec(compile(block, "author-guide.md", "exec"), names)
    plugin = names["plugin"]
    assert isinstance(plugin, hotbay_sdk.Plugin)
    return plugin


def test_author_guide_examples_before_the_cycle():
    with PluginHarness(example("gate")) as harness:
        for declared in harness._plugin.declarations:
            harness.configure(declared.type, declared.type)
        parse = partial(harness.parse, "translate-parser", "/v1/translate")
        assert parse(b'{"model": "m", "text": "hallo"}') == hotbay_sdk.ParsedRequest("m", "hallo")
        assert {parse(body).code for body in (b"[]", b"{}", b"\xff")} == {"bad-request"}  # type: ignore[union-attr]  # all are denied
        asked = [{"headers": {"x-tier": tier}} for tier in ("gold", "lead")]
        assert harness.request_headers("tier-processor", [*asked, {}]) == [{"tier": "gold"}, {}, {}]
        assert harness.screen("drain-screener", {"a": {"weight": 0}, "b": {"weight": 1}, "c": {}}) == [["b", "c"]]
        assert harness.saturation("queue-detector", {"a": {"waiting": 4}, "b": {}}) == 0.5
        assert harness.saturation("queue-detector", {"a": {}}) == 1.0
        silver, gold = ({"attributes": {"tier": tier}} for tier in ("silver", "gold"))
        full, free = {"a": {"waiting": 9}}, {"a": {"waiting": 9}, "b": {"waiting": 1}}
        assert harness.admit("silver-admitter", free, [silver, gold]) == [None, None]
        denied, admitted = harness.admit("silver-admitter", full, [silver, gold])
        assert denied is not None
        assert (denied.reason, admitted) == ("rejected-saturated", None)


def test_author_guide_examples_in_the_cycle():
    endpoints = {"a": {"labels": {"zone": "z"}, "waiting": 5}, "b": {"labels": {"zone": "y"}, "waiting": 1}}
    with PluginHarness(example("nearness")) as harness:
        for declared in harness._plugin.declarations:
            harness.configure(declared.type, declared.type)
        made = harness.produce("nearness-producer", endpoints, [{"headers": {"x-zone": "z"}}])
        assert made == {"Nearness.share": [[1.0, 0.0]], "Nearness.best": [[1.0]], "Nearness.zone": [["z"]]}
        data = {"Nearness.share": [1.0, 0.0], "Nearness.best/request": [1.0], "Nearness.zone/text": ["z"]}
        assert harness.score("nearness-scorer", endpoints, data=data) == [{"a": 1.0, "b": 0.0}]
        assert harness.score("nearness-scorer", endpoints) == [{"a": 0.5, "b": 0.5}]
        assert harness.profile_pick("zone-handler", ["y", "z"], {}, None, endpoints, data=data) == ["z"]
        assert harness.profile_pick("zone-handler", ["x", "y"], {}, None, endpoints, data=data) == ["x"]
        assert harness.profile_pick("zone-handler", ["y", "z"], {"z": ["a"]}, None, endpoints) == []
        merged = harness.profile_process("zone-handler", {"z": ["a", "b"], "y": None}, None, endpoints)
        assert merged == ("z", {"z": ["b", "a"]})
        assert harness.pick("best-of-two-picker", endpoints, {"a": 1.0, "b": 2.0}) == ["b"]


def test_author_guide_examples_after_the_cycle():
    with PluginHarness(example("ledger")) as harness:
        harness.configure("p", "prefill-header")
        results = {"decode": ["a"], "prefill": ["b"]}
        edits = harness.pre_request("p", {"a": {}}, ["a"], profile="decode", results=results)
        assert edits == hotbay_sdk.Edits({"x-prefill": "b"})
        assert harness.pre_request("p", {"a": {}}, ["a"]) == hotbay_sdk.Edits({"x-prefill": None})
        harness.configure("l", "ledger")
        for request in ("r1", "r2", "r3"):
            harness.pre_request("l", {"a": {}}, ["a"], {"id": request})
        harness.withdrawn("l", {"a": {}}, ["a"], {"id": "r1"})
        harness.response_headers("l", {"headers": {"x-cost": "0.5"}}, {"id": "r2"})
        harness.response_body("l", {"end": False}, {"id": "r2"})
        assert harness.dump_state("l") == {"open": ["r2", "r3"], "total": 2, "tokens": 0, "cost": 0.5}
        harness.response_body("l", {"usage": {"completion_tokens": 7}}, {"id": "r2"})
        assert harness.dump_state("l") == {"open": ["r3"], "total": 1, "tokens": 7, "cost": 0.5}


def test_author_guide_examples_of_policies():
    small, large = (hotbay_sdk.QueuedRequest(str(n), "f", 0, 1.0 / n, 60.0, n) for n in (1, 9))
    old, new = (hotbay_sdk.InFlightRequest(str(n), -n, float(n)) for n in (0, 1))
    with PluginHarness(example("queues")) as harness:
        for declared in harness._plugin.declarations:
            harness.configure(declared.type, declared.type)
        flows = [hotbay_sdk.Flow("x", [small]), hotbay_sdk.Flow("y", [small, large])]
        assert harness.fairness("longest-queue-fairness", hotbay_sdk.Band(0, flows)) == "y"
        assert harness.fairness("longest-queue-fairness", hotbay_sdk.Band(0, [hotbay_sdk.Flow("x", [])])) is None
        assert harness.ordering("small-first-ordering", [large, small]) == [small, large]
        assert harness.limits("halving-limit", 0.5, [1, 0, -1]) == [1.0, 0.5, 0.25]
        assert harness.eviction_order("newest-first-eviction", [old, new]) == [new, old]
        assert harness.eviction_filter("newest-first-eviction", [old, new]) == [new]


def test_author_guide_example_of_a_wildcard_reads_what_its_parameters_name():
    plugin = hotbay_sdk.Plugin("guide")
    (block,) = [block for block in blocks("docs/author-guide.md") if "header-value-filter" in block]
    exec(compile(f"from __future__ import annotations\n{block}", "author-guide.md", "exec"), {**SDK, "plugin": plugin})
    endpoints = {"a": {"labels": {"x-zone": "z"}}, "b": {}}
    with PluginHarness(plugin) as harness:
        harness.configure("f", "header-value-filter", {"header": "x-zone"})
        kept = harness.keep("f", endpoints, [{"headers": {"x-zone": "z"}}, {"headers": {"x-zone": "y"}}, {}])
        assert kept == [["a"], [], ["a", "b"]]


def test_author_guide_lists_every_column_field_and_point():
    guide = (ROOT / "docs" / "author-guide.md").read_text()
    rows = [line for line in guide.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    assert {*COLUMN_FORMATS, *REQUEST_FIELDS} <= named
    bases = {name for name, found in SDK.items() if hasattr(found, "_hotbay_point")}
    assert bases <= named
    shown = {name for block in blocks("docs/author-guide.md") for name in re.findall(r"\b[A-Z]\w+\b", block)}
    assert bases - shown == {"NotificationSource"}, "its example is a sample plugin"


class PowerMeter(BaseHTTPRequestHandler):
    """What the guide's polling source asks."""

    def do_GET(self) -> None:
        body = b'{"watts": 300}' if self.path == "/power" else b""
        self.send_response(200 if body else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def power_port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), PowerMeter)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join(10)
    server.server_close()


@pytest.fixture
def data_layer() -> hotbay_sdk.Plugin:
    """The plugin that the samples of the data layer make; each imports what it uses."""
    *_, maker, events, discovery, sources, _ = blocks("docs/author-guide.md")
    # Dataclasses look their module up by name.
    names: dict[str, object] = {"__name__": "builtins"}
    for block in (maker, events, discovery, sources):
        exec(compile(block, "author-guide.md", "exec"), names)
    plugin = names["plugin"]
    assert isinstance(plugin, hotbay_sdk.Plugin)
    return plugin


def test_author_guide_scorer_reads_what_its_extractor_makes(data_layer: hotbay_sdk.Plugin):
    with PluginHarness(data_layer) as harness:
        harness.configure("depth", "queue-depth-extractor")
        assert harness.extract("depth", {"my_engine_queue_depth": [[{}, 2.0], [{}, 1.0]]}) == {"queue_depth": 3.0}
        assert harness.extract("depth", {}) == {"queue_depth": None}
        harness.configure("queue", "queue-depth-scorer")
        endpoints = {"a": {"attribute.queue_depth": 3}, "b": {"attribute.queue_depth": 0}, "c": {}}
        assert harness.score("queue", endpoints) == [{"a": 0.25, "b": 1.0, "c": 0.5}]


def test_author_guide_example_of_events_reads_what_the_guide_lists(data_layer: hotbay_sdk.Plugin):
    endpoint = EndpointMetadata("default/a", "a", "10.0.0.1", 8000, labels={"rack": "7"})
    told = {kind: event_to_wire(EndpointNews(kind, endpoint)) for kind in EventType}
    with PluginHarness(data_layer) as harness:
        harness.configure("racks", "rack-extractor")
        assert harness.event_extract("racks", told[EventType.ADD_OR_UPDATE]) == {"default/a": {"rack": 7}}
        assert harness.event_extract("racks", told[EventType.DELETE], number=2) == {}
    guide = (ROOT / "docs" / "author-guide.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)` \|.*\| (?:all|payload `.*`) \|$", guide, re.MULTILINE))
    lease = ObjectEvent(EventType.DELETE, ObjectKind("example.com", "v1", "Lease"), "n/a", {})
    assert listed == {"number", *told[EventType.DELETE], *event_to_wire(lease)}
    (row,) = re.findall(r"is a map of (`id`.*?), and nothing else", guide, re.DOTALL)
    assert set(wire_row(endpoint)) <= set(re.findall(r"`(\w+)`", row))


def test_author_guide_examples_of_runs_and_polls_work(data_layer: hotbay_sdk.Plugin, tmp_path: Path, power_port: int):
    server = tmp_path / "s.txt"
    server.write_text("10.0.0.1\n")
    with PluginHarness(data_layer) as harness:
        harness.configure("found", "file-per-server-discovery", {"folder": str(tmp_path)})
        told = harness.discover("found", [server.unlink])
        (tmp_path / "l.txt").write_text("me")
        harness.configure("leases", "lease-source", {"folder": str(tmp_path)})
        seen = harness.watch("leases", [(tmp_path / "l.txt").unlink])
        harness.configure("power", "power-source")
        assert harness.poll("power", {"address": "127.0.0.1", "port": power_port}) == {"watts": 300}
    upsert = ["upsert", {"id": "default/s", "address": "10.0.0.1", "port": 8000}]
    assert told == [upsert, ["ready"], ["delete", "default/s"]]
    head = {"apiVersion": "example.com/v1", "kind": "Lease", "metadata": {"name": "l"}}
    assert seen == [["upsert", {**head, "spec": {"holder": "me"}}], ["ready"], ["delete", "l"]]


def test_author_guide_runs_fail_where_their_folder_cannot_be_listed(data_layer: hotbay_sdk.Plugin, tmp_path: Path):
    with PluginHarness(data_layer) as harness:
        harness.configure("found", "file-per-server-discovery", {"folder": str(tmp_path / "nowhere")})
        with pytest.raises(PluginCallError, match="nowhere"):
            harness.discover("found")
        harness.configure("leases", "lease-source", {"folder": str(tmp_path / "nowhere")})
        with pytest.raises(PluginCallError, match="nowhere"):
            harness.watch("leases")


@pytest.mark.parametrize("command", [call, conformance, new, publish], ids=lambda command: command.name)
def test_author_guide_names_options_that_exist(command: click.Command):
    guide = (ROOT / "docs" / "author-guide.md").read_text()
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    lines = [line for line in guide.splitlines() if line.startswith(f"$ hotbay {command.name} ")]
    used = {option for line in lines for option in re.findall(r" (--[a-z-]+)", line.partition(" -- ")[0])}
    assert lines
    assert used <= known


def test_links_of_all_pages_lead_somewhere():
    links = [
        page.parent / link
        for page in (ROOT / "docs").rglob("*.md")
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in link
    ]
    assert len(links) > 10
    assert [link for link in links if not link.exists()] == []


def anchors_of(page: Path) -> set[str]:
    """Anchors of the headings, as code forges make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_anchors_of_all_pages_lead_somewhere():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    links = [
        (page.name, page.parent / link if link else page, anchor)
        for page in pages
        for link, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text())
    ]
    assert len(links) > 30
    assert [(name, anchor) for name, target, anchor in links if anchor not in anchors_of(target)] == []


def test_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text()
    assert [
        page.name for page in (ROOT / "docs").glob("*.md") if page.name not in index and page.name != "README.md"
    ] == []


def test_decisions_are_numbered_and_have_the_same_parts():
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        text = page.read_text()
        assert text.startswith(f"# {int(page.name[:4])}. ")
        assert all(part in text for part in ("\nStatus: ", "\n## Context\n", "\n## Decision\n")), page.name
