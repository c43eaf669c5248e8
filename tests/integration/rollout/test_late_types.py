"""Sources and extractors whose types are known only when their processes are READY, in a whole host."""

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

WAIT_S = 60.0
HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"

# -- a notification source -----------------------------------------------------------------------

PODS = """
from hotbay_sdk import EventExtractor, NotificationSource, Plugin

plugin = Plugin("pods")

@plugin.type("pod-source", payload="object:/v1/{kind}")
class PodSource(NotificationSource):
    def notify(self, event):
        spec = event["object"]["spec"]
        if spec.get("hidden"):
            return None
        spec["seen_by"] = {version}
        return event

@plugin.type("pod-ranks", payload="object:/v1/{reads}", attributes={{"rank": "i64", "seen_by": "i64"}},
             parameters=lambda raw: raw)
class PodRanks(EventExtractor):
    def __init__(self, context, parameters):
        self.path = parameters["path"]

    def extract(self, event):
        spec = event["object"]["spec"]
        with open(self.path, "a") as log:
            log.write(f"{{event['key']}} {{spec['rank']}} {{spec['seen_by']}}\\n")
        return {{event["key"]: {{"rank": spec["rank"], "seen_by": spec["seen_by"]}}}}
"""
POD_PICKER = (
    HEAD
    + """plugins:
- {{name: pods, type: pod-source}}
- {{name: ranks, type: pod-ranks, parameters: {{path: {log}}}}}
dataLayer:
  sources:
  - {{pluginRef: pods, extractors: [{{pluginRef: ranks}}]}}
"""
)
SOURCE_LINE = POD_PICKER.splitlines().index("  - {{pluginRef: pods, extractors: [{{pluginRef: ranks}}]}}") + 1


class Pods:
    """A folder of objects, the package that sees them, and what its extractor was told."""

    def __init__(self, tmp_path: Path, packages: Any) -> None:
        self.folder = tmp_path / "objects"
        self.folder.mkdir()
        self.log = tmp_path / "events.log"
        self.log.touch()
        self.picker = POD_PICKER.format(log=self.log)
        self.config = f"objects: {{directory: {self.folder}}}\n"
        self._tmp_path = tmp_path
        self._packages = packages

    def package(self, rev: int, *, kind: str = "Pod", reads: str = "Pod", folder: str = "packages") -> None:
        out = self._tmp_path / folder / f"pods-{rev}"
        source = PODS.format(version=rev, kind=kind, reads=reads)
        self._packages.make(out, source, id="pods", types=("pod-source", "pod-ranks"), rev=rev)

    def put(self, name: str, rank: int, *, hidden: bool = False, kind: str = "Pod") -> None:
        document = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}}
        part = self.folder / "part"
        part.write_text(json.dumps(document | {"spec": {"rank": rank, "hidden": hidden}}))
        part.rename(self.folder / f"{name}.json")

    @property
    def told(self) -> list[tuple[str, int, int]]:
        rows = (line.split() for line in self.log.read_text().splitlines())
        return [(key.rpartition("/")[2], int(rank), int(version)) for key, rank, version in rows]


def paths(bay: Any) -> list[tuple[str, str, int | None]]:
    """Problems of the data layer in status: code, source, line."""
    return [
        (problem.code, problem.path, problem.place.line if problem.place is not None else None)
        for problem in bay.host._data.problems
    ]


async def test_events_are_changed_and_dropped_by_a_source_of_a_package_and_keep_their_order_across_swaps(
    host, packages, until, tmp_path
):
    pods = Pods(tmp_path, packages)
    pods.package(1)
    pods.put("server-0", 0)
    async with host(pods.picker, config=pods.config) as bay:
        await until(lambda: ("server-0", 0, 1) in pods.told, within_s=WAIT_S)
        rank = 0

        async def more(count: int) -> None:
            nonlocal rank
            for _ in range(count):
                rank += 1
                pods.put("server-0", rank, hidden=rank % 3 == 0)
            if rank % 3 == 0:
                rank += 1
                pods.put("server-0", rank)
            await until(lambda: pods.told[-1][1] == rank, within_s=WAIT_S)

        await more(3)
        for rev in (2, 3):
            pods.package(rev)
            while bay.live("pods")["rev"] != rev:
                await more(1)
            await more(2)
        await bay.wait_for(lambda: pods.told[-1][2] == 3)
        ranks = [found for _, found, _ in pods.told]
        assert ranks == sorted(set(ranks))
        assert not [found for found in ranks if found and found % 3 == 0]
        assert {version for _, _, version in pods.told} == {1, 2, 3}
        versions = [version for _, _, version in pods.told]
        assert versions == sorted(versions)
        assert bay.serving.metrics.data_events.get("pods", "delivered") == len(ranks)
        assert bay.serving.metrics.data_events.get("pods", "failed") == 0
        server = bay.servers[0]
        pods.put(server.name, 77)
        endpoint = bay.host._data.store.endpoint(f"default/{server.name}")
        await until(lambda: endpoint.attributes.get("rank") == 77, within_s=WAIT_S)
        assert endpoint.attributes.get("seen_by") == 3
        assert paths(bay) == []


async def test_a_source_that_waits_for_its_package_is_told_in_status_and_bound_when_it_is_ready(
    host, packages, until, tmp_path
):
    pods = Pods(tmp_path, packages)
    pods.put("server-0", 5)
    source = "import os, time\nwhile not os.path.exists({path!r}): time.sleep(0.01)\n".format(path=str(tmp_path / "go"))
    out = tmp_path / "packages" / "pods-1"
    packages.make(
        out,
        source + PODS.format(version=1, kind="Pod", reads="Pod"),
        id="pods",
        types=("pod-source", "pod-ranks"),
        rev=1,
    )
    async with host(pods.picker, config=pods.config, ready=False) as bay:
        await bay.wait_for(lambda: paths(bay) == [("UNAVAILABLE", "dataLayer.sources[0].pluginRef", SOURCE_LINE)])
        assert "waits for its package" in json.dumps(bay.status()["problems"], default=str)
        assert pods.told == []
        (tmp_path / "go").touch()
        await until(lambda: pods.told == [("server-0", 5, 1)], within_s=WAIT_S)
        assert paths(bay) == []


async def test_e21_a_source_that_turns_out_to_be_wrong_is_a_problem_at_its_place_until_a_version_mends_it(
    host, packages, until, tmp_path
):
    pods = Pods(tmp_path, packages)
    pods.package(1, kind="Service")
    pods.put("server-0", 5)
    async with host(pods.picker, config=pods.config) as bay:
        await bay.wait_for(
            lambda: paths(bay) == [("CONFIG_INVALID", "dataLayer.sources[0].extractors[0].pluginRef", SOURCE_LINE)]
        )
        assert pods.told == []
        pods.package(2)
        await until(lambda: pods.told == [("server-0", 5, 2)], within_s=WAIT_S)
        assert paths(bay) == []


async def test_a_version_of_another_kind_is_bound_when_it_is_live_and_the_one_before_when_it_is_back(
    host, packages, until, tmp_path
):
    pods = Pods(tmp_path, packages)
    pods.package(1)
    pods.put("server-0", 1)
    pods.put("node-0", 9, kind="Node")
    async with host(pods.picker, config=pods.config) as bay:
        server = bay.servers[0]
        pods.put(server.name, 5)
        endpoint = bay.host._data.store.endpoint(f"default/{server.name}")
        await until(lambda: endpoint.attributes.get("rank") == 5, within_s=WAIT_S)
        pods.package(2, kind="Node", reads="Node")
        await until(lambda: ("node-0", 9, 2) in pods.told, within_s=WAIT_S)
        assert endpoint.attributes.get("rank") is None, "the objects that said so are not looked at any more"
        assert {name for name, _, version in pods.told if version == 2} == {"node-0"}
        assert paths(bay) == []
        await bay.operations.rollback("pods", "me")
        await bay.rev_is_live(1, "pods")
        pods.put("server-0", 3)
        await until(lambda: ("server-0", 3, 1) in pods.told, within_s=WAIT_S)
        await until(lambda: endpoint.attributes.get("rank") == 5, within_s=WAIT_S)
        assert paths(bay) == []


async def test_a_source_of_a_host_without_objects_says_so(host, packages, tmp_path):
    pods = Pods(tmp_path, packages)
    pods.package(1)
    async with host(pods.picker) as bay:
        await bay.wait_for(lambda: paths(bay) == [("CONFIG_INVALID", "objects.directory", None)])


# -- an endpoint source --------------------------------------------------------------------------

ROLES = """
from hotbay_sdk import EventExtractor, NotificationSource, Plugin

plugin = Plugin("roles")

@plugin.type("role-source", payload="endpoint")
class RoleSource(NotificationSource):
    def notify(self, event):
        event["endpoint"]["labels"]["role"] = "decode"
        return event

@plugin.type("role-extractor", payload="endpoint", attributes={"role": "value"})
class RoleExtractor(EventExtractor):
    def extract(self, event):
        return {event["endpoint"]["id"]: {"role": event["endpoint"]["labels"]["role"]}}
"""
ROLE_PICKER = (
    HEAD
    + """plugins:
- {name: roles, type: role-source}
- {name: role, type: role-extractor}
dataLayer:
  sources:
  - {pluginRef: roles, extractors: [{pluginRef: role}]}
"""
)


async def test_a_source_that_is_bound_late_is_told_of_endpoints_that_were_there_before(host, packages, tmp_path):
    packages.make(tmp_path / "packages" / "roles-1", ROLES, id="roles", types=("role-source", "role-extractor"))
    async with host(ROLE_PICKER) as bay:
        store = bay.host._data.store

        def roles() -> set[object]:
            return {store.endpoint(f"default/{server.name}").attributes.get("role") for server in bay.servers}

        await bay.wait_for(lambda: roles() == {"decode"})
        assert bay.serving.metrics.data_events.get("roles", "delivered") == len(bay.servers)


# -- extractors that nobody named ----------------------------------------------------------------

DEPTH = """
from hotbay_sdk import Extractor, Plugin

plugin = Plugin("depth")

@plugin.type("depth-extractor", payload="metrics", families={families}, attributes={{"depth": "f32"}},
             default_source={default!r})
class Depth(Extractor):
    def extract(self, payload, endpoint):
        return {{"depth": sum(value for name in {families} for _, value in payload.get(name, ()))}}
"""
DEPTH_PICKER = HEAD + "plugins:\n- {name: depth, type: depth-extractor}\n"
PAGE = b"vllm:num_requests_waiting 3\nfirst_depth 4\nsecond_depth 5\n"


def depth_package(packages: Any, tmp_path: Path, rev: int, families: list[str], default: str) -> None:
    source = DEPTH.format(families=families, default=default)
    packages.make(tmp_path / "packages" / f"depth-{rev}", source, id="depth", types=("depth-extractor",), rev=rev)


def depths(bay: Any) -> list[object]:
    store = bay.host._data.store
    return [store.endpoint(f"default/{server.name}").attributes.get("depth") for server in bay.servers]


@pytest.mark.parametrize("process", ["false", "true"])
async def test_an_extractor_that_is_listed_gets_its_default_source_and_the_families_of_every_version(
    host, packages, tmp_path, process
):
    depth_package(packages, tmp_path, 1, ["first_depth"], "metrics-data-source")
    async with host(DEPTH_PICKER, config=f"scrape: {{interval: 50ms, process: {process}}}") as bay:
        for server in bay.servers:
            server.page = PAGE
        await bay.wait_for(lambda: set(depths(bay)) == {4.0})
        depth_package(packages, tmp_path, 2, ["first_depth", "second_depth"], "metrics-data-source")
        await bay.wait_for(lambda: set(depths(bay)) == {9.0})
        assert paths(bay) == []
        assert [binding.source.name for binding in bay.host._data.collection.resolution.bindings] == [
            "metrics-data-source"
        ]


async def test_an_extractor_whose_next_version_asks_for_another_source_stands_behind_that(host, packages, tmp_path):
    depth_package(packages, tmp_path, 1, ["first_depth"], "metrics-data-source")
    async with host(DEPTH_PICKER) as bay:
        collection = bay.host._data.collection

        def behind() -> list[tuple[str, list[str]]]:
            bindings = collection.resolution.bindings
            return [(it.source.name, [one.name for one in it.extractors]) for it in bindings]

        await bay.wait_for(lambda: behind() == [("metrics-data-source", ["core-metrics-extractor", "depth"])])
        depth_package(packages, tmp_path, 2, ["first_depth"], "dcgm-data-source")
        await bay.wait_for(
            lambda: behind() == [("metrics-data-source", ["core-metrics-extractor"]), ("dcgm-data-source", ["depth"])]
        )
        assert paths(bay) == []
        assert set(collection.intervals_s) == {"metrics-data-source", "dcgm-data-source"}


async def test_a_default_source_that_the_host_cannot_make_is_a_warning_and_the_host_is_ready(host, packages, tmp_path):
    depth_package(packages, tmp_path, 1, ["first_depth"], "object-directory-source")
    async with host(DEPTH_PICKER) as bay:
        await bay.wait_for(lambda: bay.status()["warnings"])
        assert "'depth' needs a source of type 'object-directory-source'" in bay.status()["warnings"][0]
        assert (paths(bay), bay.status()["ready"]) == ([], True)


# -- packages that say which of their types see no request ---------------------------------------

BROKEN = "raise RuntimeError('never READY')\n"


@pytest.mark.parametrize(("said", "absent"), [((), {"depth"}), (("depth-extractor",), set())])
async def test_an_extractor_that_was_never_ready_and_that_nobody_names_is_no_scorer_where_its_package_says_so(
    host, packages, tmp_path, said, absent
):
    out = tmp_path / "packages" / "depth-1"
    packages.make(out, BROKEN, id="depth", types=("depth-extractor",), data_types=said)
    async with host(DEPTH_PICKER) as bay:
        await bay.wait_for(lambda: bay.error("depth"))
        plan = bay.host._router.plan
        assert {binding.ref for binding in plan.profiles["default"].bindings} == absent


async def test_a_package_whose_process_says_otherwise_is_refused(host, packages, tmp_path):
    source = DEPTH.format(families=["first_depth"], default="metrics-data-source")
    both = (
        source
        + """
from hotbay_sdk import Scorer

@plugin.type("depth-scorer", reads=["attribute.depth"])
class DepthScorer(Scorer):
    def score(self, request, endpoint):
        return 1.0
"""
    )
    types = ("depth-extractor", "depth-scorer")
    packages.make(tmp_path / "packages" / "depth-1", both, id="depth", types=types, data_types=types)
    async with host(DEPTH_PICKER) as bay:
        await bay.wait_for(lambda: bay.error("depth") and bay.error("depth")["code"] == "INVALID_PACKAGE")
        assert "its manifest says depth-extractor, depth-scorer" in bay.error("depth")["message"]
        packages.make(tmp_path / "packages" / "depth-2", both, id="depth", types=types, data_types=types[:1], rev=2)
        await bay.rev_is_live(2, "depth")
