"""The demo's own configurations are ones that a host takes."""

from pathlib import Path

from hotbay.config.host_config import load_host_config
from hotbay.config.picker_config import load_picker_config
from hotbay.demo.configuration import PICKER, host_config

URLS = ["http://127.0.0.1:1001", "http://127.0.0.1:1002"]


def test_the_host_config_loads_and_names_every_server():
    text = host_config(URLS)
    loaded = load_host_config(text, file="host.yaml", base_directory=Path("/x"), environment={}, is_root=False)

    assert [(e.effective_name, e.url.port) for e in loaded.endpoints] == [("llama-0", 1001), ("llama-1", 1002)]
    assert str(loaded.state_dir) == "/x/state"
    assert loaded.isolation.level == "none"


def test_every_plugin_of_the_picker_config_has_a_generous_deadline():
    picker = load_picker_config(PICKER, file="picker.yaml")
    text = host_config(URLS)
    loaded = load_host_config(text, file="host.yaml", base_directory=Path("/x"), environment={}, is_root=False)
    remote = {plugin.name for plugin in picker.plugins if plugin.type != "max-score-picker"}

    assert set(loaded.bindings) == remote
    assert all((binding.deadline_s or 0) >= 1 for binding in loaded.bindings.values())
