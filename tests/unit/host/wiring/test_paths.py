"""Relative paths of the picker configuration count from its folder, which a reload may change."""

from functools import partial
from pathlib import Path

import anyio
import pytest
from hotbay.config.host_config import load_host_config
from hotbay.config.picker_config import PickerConfig, load_picker_config
from hotbay.data_layer import DataLayer
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics

pytestmark = pytest.mark.anyio

WAIT_S = 10.0
PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: found, type: file-discovery, parameters: {path: eps.yaml, watchFile: true}}
dataLayer: {discovery: {pluginRef: found}}
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    made = tmp_path / "first", tmp_path / "other"
    for number, folder in enumerate(made):
        folder.mkdir()
        (folder / "eps.yaml").write_text(f"endpoints: [{{name: {folder.name}, address: 10.0.0.{number}, port: 1}}]\n")
    return made


def _set(changed: anyio.Event, _event: object) -> None:
    changed.set()


def picker() -> PickerConfig:
    return load_picker_config(PICKER, file="picker.yaml")


async def test_another_folder_of_the_picker_is_another_file_though_it_says_the_same(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    first, other = folders
    config = load_host_config("state_dir: state", file="h", base_directory=tmp_path, environment={}, is_root=False)
    data = DataLayer(config, picker(), directory=first, background=Background(), metrics=Metrics())
    await data.load()

    async def until(name: str) -> None:
        with anyio.fail_after(WAIT_S):
            while [one.name for one in data.store.endpoints()] != [name]:
                changed = anyio.Event()
                unsubscribe = data.store.subscribe(partial(_set, changed))
                await changed.wait()
                unsubscribe()

    async with anyio.create_task_group() as group:
        await group.start(data.discovery.run)
        await until("first")
        data.configure(config, await data.prepare(picker(), other))
        await until("other")
        # Who names no folder means the one in force.
        assert [plan.name for plan in (await data.prepare(picker())).plans] == [str(other / "eps.yaml")]
        group.cancel_scope.cancel()
