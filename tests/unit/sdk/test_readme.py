"""The SDK's README shows a plugin and its test; both run."""

import importlib.metadata
import re
from pathlib import Path

import hotbay_sdk
from hotbay_sdk import _serve

README = Path(__file__).parents[3] / "sdk" / "README.md"


def test_readme_blocks_run():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {"__name__": "readme_example"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)


def test_example_plugin_is_short():
    plugin = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[0]
    assert len([line for line in plugin.splitlines() if line.strip()]) <= 30


def test_every_exported_name_is_documented():
    assert hotbay_sdk.__all__ == sorted(hotbay_sdk.__all__)
    for name in hotbay_sdk.__all__:
        assert getattr(hotbay_sdk, name).__doc__, name


def test_version_said_in_hello_is_the_distributions():
    assert importlib.metadata.version("hotbay-sdk") == _serve.SDK_VERSION
