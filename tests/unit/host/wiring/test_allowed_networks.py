"""Networks that the host's configuration allows reach discovery, at the start and at a reload, and what is refused is told."""

from pathlib import Path

import anyio
import pytest
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.config.picker_config import PickerConfig, load_picker_config
from hotbay.data_layer import DataLayer
from hotbay.datalayer.discovery.session import MAX_ENDPOINTS
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics

pytestmark = pytest.mark.anyio

WAIT_S = 10.0
LISTED = "discovery: {allowed_networks: [10.0.0.0/8]}\nendpoints: [{url: 'http://192.0.2.9:1', name: own}]\n"
OTHER = LISTED.replace("10.0.0.0/8", "192.0.2.0/24")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def host(tmp_path: Path, text: str) -> HostConfig:
    head = "apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: state\n"
    return load_host_config(head + text, file="host.yaml", base_directory=tmp_path, environment={}, is_root=False)


def picker() -> PickerConfig:
    text = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- name: found
  type: static-discovery
  parameters: {endpoints: [{name: near, address: 10.0.0.1, port: 1}, {name: far, address: 192.0.2.1, port: 1}]}
dataLayer: {discovery: {pluginRef: found}}
"""
    return load_picker_config(text, file="picker.yaml")


def names(data: DataLayer) -> list[str]:
    return sorted(endpoint.name for endpoint in data.store.endpoints())


async def test_networks_that_are_allowed_hold_from_the_start_and_after_a_reload(tmp_path: Path) -> None:
    counted = Metrics()
    data = DataLayer(
        host(tmp_path, LISTED), picker(), directory=tmp_path, background=Background(), metrics=counted
    )  # fmt: skip
    await data.load()
    async with anyio.create_task_group() as group:
        await group.start(data.discovery.run)
        with anyio.fail_after(WAIT_S):
            await data.discovery.ready.wait()
        assert names(data) == ["near", "own"]
        (problem,) = data.problems
        assert "'default/far' of static-discovery 'found'" in problem.message
        data.configure(host(tmp_path, OTHER), await data.prepare(picker()))
        assert names(data) == ["far", "own"]
        assert ["'default/near'" in one.message for one in data.problems] == [True]
        group.cancel_scope.cancel()
    assert b'hotbay_datalayer_endpoints_refused_total{reason="network"} 2.0' in counted.render()


async def test_discovery_of_a_package_may_name_as_many_as_the_host_says_from_the_start_and_after_a_reload(
    tmp_path: Path,
) -> None:
    few, more = (f"discovery: {{plugin_endpoints: {most}}}\n" for most in (3, 4))
    of_package = load_picker_config(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
        "plugins: [{name: scan, type: net-scan}]\ndataLayer: {discovery: {pluginRef: scan}}\n",
        file="picker.yaml",
    )
    data = DataLayer(
        host(tmp_path, few), of_package, directory=tmp_path, background=Background(), metrics=Metrics()
    )  # fmt: skip
    await data.load()
    assert [plan.most for plan in data.discovery.plans] == [3]
    data.configure(host(tmp_path, more), await data.prepare(of_package))
    assert [plan.most for plan in data.discovery.plans] == [4]
    data.configure(host(tmp_path, few), await data.prepare(picker()))
    assert [plan.most for plan in data.discovery.plans] == [MAX_ENDPOINTS], "of what the host itself reads"
