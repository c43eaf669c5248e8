"""Changes of the configuration that wait to be applied."""

from pathlib import Path

import pytest
from hotbay.app import HeldBack, Host
from hotbay.config.host_config import load_host_config
from hotbay.config.picker_config import load_picker_config
from hotbay.errors import CapacityError

CONFIG = "apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: state\nlisten: {http: '127.0.0.1:0'}\nsources: []\n"
PICKER = (
    "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: []\n"
    "schedulingProfiles:\n- name: default\n  plugins: []\n"
)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    config = load_host_config(CONFIG, file="host.yaml", base_directory=tmp_path, environment={}, is_root=False)
    return Host(config, load_picker_config(PICKER, file="picker.yaml"), picker_directory=tmp_path)


@pytest.mark.anyio
async def test_change_that_cannot_be_applied_waits_on(host: Host) -> None:
    async def fail() -> None:
        raise CapacityError("UNAVAILABLE", "not now")

    first = HeldBack(("first",), fail)
    host.hold_back(first)
    with pytest.raises(CapacityError):
        await host._apply()
    assert host._held_back is first


@pytest.mark.anyio
async def test_change_that_came_while_another_failed_to_apply_is_the_one_that_waits(host: Host) -> None:
    async def fine() -> None: ...

    newer = HeldBack(("newer",), fine)

    async def fail() -> None:
        host.hold_back(newer)
        raise CapacityError("UNAVAILABLE", "not now")

    host.hold_back(HeldBack(("first",), fail))
    with pytest.raises(CapacityError):
        await host._apply()
    assert host._held_back is newer
    assert list(await host._apply()) == ["newer"]
