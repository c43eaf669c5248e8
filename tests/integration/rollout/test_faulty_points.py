"""R25: a plugin that raises, exits or is killed in any extension point takes nobody down, and is counted there."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(90)]

EVERY_POINT = """
import os, signal
from hotbay_sdk import DataProducer, Filter, Picker, Plugin, PreRequest, ProfileHandler, Scorer

plugin = Plugin("points")

def faulty(point):
    path = os.path.join({folder!r}, point)
    try:
        way = open(path).read()
        os.unlink(path)
    except FileNotFoundError:
        return
    if way == "raise":
        raise RuntimeError("as asked")
    if way == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)

@plugin.type("a-filter")
class AFilter(Filter):
    def keep_batch(self, requests, endpoints):
        faulty("filter")
        return [[True] * len(endpoints) for _ in requests]

@plugin.type("a-scorer")
class AScorer(Scorer):
    def score_batch(self, requests, endpoints):
        faulty("score")
        return [[0.5] * len(endpoints) for _ in requests]

@plugin.type("a-picker")
class APicker(Picker):
    def pick(self, request, candidates, n):
        faulty("pick")
        return list(candidates)[:n]

@plugin.type("a-handler")
class AHandler(ProfileHandler):
    def pick(self, request, profiles, results, endpoints):
        faulty("profile_handler")
        return [] if results else list(profiles)

    def process(self, request, results, endpoints):
        return next(iter(results)), results

@plugin.type("a-producer", produces={{"Size.value": "request"}})
class AProducer(DataProducer):
    def produce(self, request, endpoints):
        faulty("produce")
        return {{"Size.value": 1.0}}

@plugin.type("a-learner")
class ALearner(PreRequest):
    def pre_request(self, request, picked, endpoints):
        faulty("pre_request")
"""
REFS = {
    "filter": "a-filter",
    "score": "a-scorer",
    "pick": "a-picker",
    "profile_handler": "a-handler",
    "produce": "a-producer",
    "pre_request": "a-learner",
}
PICKER = (
    "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n"
    + "".join(f"- {{name: my-{point.replace('_', '-')}, type: {kind}}}\n" for point, kind in REFS.items())
    + "schedulingProfiles:\n- name: default\n  plugins: [{pluginRef: my-filter}, {pluginRef: my-score}, {pluginRef: my-pick}]\n"
)
# Restarts without much of a pause, as often as the test needs them.
CONFIG = (
    "supervise: {restart: {first: 20ms, max: 20ms}, budget: {failures: 100}}\n"
    "bindings: {" + ", ".join(f"my-{point.replace('_', '-')}: {{deadline: 5s}}" for point in REFS) + "}\n"
)


@pytest.mark.timeout(240)
async def test_r25_fault_in_any_point_is_the_faulty_plugins_alone(host, packages, tmp_path):
    folder = tmp_path / "faults"
    folder.mkdir()
    source = EVERY_POINT.format(folder=str(folder))
    packages.make(tmp_path / "packages" / "points", source, id="points", types=tuple(REFS.values()))
    async with host(PICKER, config=CONFIG) as bay, bay.load(100) as load:
        await load.more(20)
        assert bay.plugin_errors() == {}
        for point in REFS:
            for way in ("raise", "exit", "kill"):
                await one_fault(bay, load, folder, point=point, way=way)
        await load.more(20)
        assert bay.plugin("points")["restarts"] == 2 * len(REFS)
    # The default policies: none of them refuses a request.
    assert load.failed == []
    assert bay.serving.metrics.plugin_restarts.get("points") == 2 * len(REFS)


async def one_fault(bay, load, folder: Path, *, point: str, way: str) -> None:
    ref = f"my-{point.replace('_', '-')}"
    code = "PLUGIN_ERROR" if way == "raise" else "CRASHED"
    before, degraded = bay.plugin_errors(), bay.degraded()
    row = bay.plugin("points")
    aside = folder / f".{point}"
    aside.write_text(way)
    aside.rename(folder / point)
    await bay.wait_for(lambda: not (folder / point).exists())
    if way != "raise":
        generation = row["live"]["generation"]
        await bay.wait_for(lambda: bay.live("points")["generation"] > generation and bay.live("points")["pid"])
        assert bay.plugin("points")["restarts"] == row["restarts"] + 1
    await load.more(5)
    if point == "pre_request":
        # It is told, not asked: what it raises goes to its log, and no decision lacks its answer.
        return
    key = (point, ref, code)
    # An error counts when the plugin answers, a degraded decision when it is made: other calls of it come between.
    await bay.wait_for(lambda: bay.degraded().get((ref, code), 0) > degraded.get((ref, code), 0))
    assert bay.plugin_errors().get(key, 0) > before.get(key, 0)
    if way == "raise":
        assert bay.plugin_errors()[key] - before.get(key, 0) <= 64, "one call, so one batch at most"
        others = {k: n for k, n in bay.plugin_errors().items() if k != key}
        assert others == {k: n for k, n in before.items() if k != key}
    assert bay.live("points")["pid"] in bay.plugin_pids()
