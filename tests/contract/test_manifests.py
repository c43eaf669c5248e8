"""Every file in `manifests/` loads, and every one in `tests/data/bad/` fails with the code in its name.

A bad file is called `code--what.kind.yaml`.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from hotbay.config.data_sources import read_data_layer
from hotbay.config.discovery_parameters import read_file_discovery
from hotbay.config.documents import decode_text, load_document
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.config.picker_config import DEFAULT_TEXT, PickerConfig, load_picker_config
from hotbay.errors import InputError

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted((ROOT / "manifests").glob("*.yaml"))
BAD = sorted((ROOT / "tests" / "data" / "bad").glob("*.yaml"))


def _text(path: Path) -> str:
    return decode_text(path.read_bytes(), file=path.name)


def _host(path: Path) -> HostConfig:
    return load_host_config(
        _text(path), file=path.name, base_directory=path.parent, environment={"HOME": "/home/op"}, is_root=False
    )


def _picker(path: Path) -> PickerConfig:
    return load_picker_config(_text(path), file=path.name)


LOADERS: dict[str, Callable[[Path], object]] = {"host": _host, "picker": _picker}


def _of_kind(prefix: str) -> list[Path]:
    return [path for path in MANIFESTS if path.name.startswith(prefix)]


def test_every_manifest_is_of_a_known_kind() -> None:
    others = set(MANIFESTS) - set(_of_kind("host-")) - set(_of_kind("picker-"))
    assert {path.name for path in others} == {"endpoints.yaml"}


@pytest.mark.parametrize("path", _of_kind("host-"), ids=lambda path: path.name)
def test_host_manifest_loads_and_names_a_picker_that_loads(path: Path) -> None:
    config = _host(path)
    if config.scheduling.file:
        assert not _picker(config.scheduling.file).warnings


@pytest.mark.parametrize("path", _of_kind("picker-"), ids=lambda path: path.name)
def test_picker_manifest_loads_without_warnings(path: Path) -> None:
    config = _picker(path)
    assert not config.warnings
    assert not read_data_layer(config).warnings
    for plugin in config.plugins:
        if plugin.type == "file-discovery":
            endpoints = path.parent / read_file_discovery(config, plugin).path
            assert isinstance(load_document(_text(endpoints), file=endpoints.name).value, dict)


def test_bindings_of_the_demo_name_plugins_of_its_picker() -> None:
    config = _host(ROOT / "manifests" / "host-demo.yaml")
    assert config.scheduling.file is not None
    assert set(config.bindings) <= {plugin.name for plugin in _picker(config.scheduling.file).plugins}


def test_default_manifest_is_the_built_in_default() -> None:
    default = load_picker_config(DEFAULT_TEXT, file="default")
    assert _picker(ROOT / "manifests" / "picker-default.yaml") == default


def test_full_manifest_writes_every_field() -> None:
    path = ROOT / "manifests" / "host-full.yaml"
    document = load_document(_text(path), file=path.name)
    assert isinstance(document.value, dict)
    assert set(document.value) == {field.alias or name for name, field in HostConfig.model_fields.items()}


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_bad_file_fails_with_the_code_in_its_name(path: Path) -> None:
    code, _, rest = path.name.partition("--")
    kind = rest.split(".")[1]
    with pytest.raises(InputError) as caught:
        LOADERS[kind](path)
    problems = caught.value.problems
    assert {problem.code for problem in problems} == {code.upper()}
    assert all(problem.place and problem.place.line and problem.place.column for problem in problems)
