"""Every file in `manifests/` loads, and every one in `tests/data/bad/` fails with the code in its name.

A bad file is called `code--what.kind.yaml`.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from hotbay.cli.loading import check_data_layer
from hotbay.cli.main import commands
from hotbay.config.data_sources import read_data_layer
from hotbay.config.discovery_parameters import read_file_discovery
from hotbay.config.documents import decode_text, load_document
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.config.picker_config import DEFAULT_TEXT, PickerConfig, load_picker_config
from hotbay.errors import InputError, Problem
from hotbay.packages.project import parse_project
from hotbay.rollout.resolution import Allowance, Scheduling, resolve
from hotbay.scheduling.registry import TypeIndex
from hotbay.wishes import allowance, binding_options

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted((ROOT / "manifests").glob("*.yaml"))
CONFIGURATIONS = (
    "minimal", "default", "prefix-aware", "lora", "session-affinity", "disaggregation", "two-profiles", "multi-tenant",
)  # fmt: skip
"""What operators copy; tests/integration/configurations runs each before simulated servers."""
BAD = sorted((ROOT / "tests" / "data" / "bad").glob("*.yaml"))


def _text(path: Path) -> str:
    return decode_text(path.read_bytes(), file=path.name)


def _host(path: Path) -> HostConfig:
    return load_host_config(
        _text(path), file=path.name, base_directory=path.parent, environment={"HOME": "/home/op"}, is_root=False
    )


def _picker(path: Path) -> PickerConfig:
    return load_picker_config(_text(path), file=path.name)


def _index() -> TypeIndex:
    """The host's types and those of the first-party projects, as their packages' manifests say them."""
    files = sorted((ROOT / "plugins").glob("*/pyproject.toml"))
    projects = [parse_project(file.read_text(), file=str(file)) for file in files]
    facts = {(it.id, name): entry.facts for it in projects for name, entry in it.type_facts.items()}
    data = [(it.id, name) for it in projects for name in it.data_types]
    return TypeIndex.build(((it.id, it.types) for it in projects), {}, data=data, facts=facts)


INDEX = _index()


def _checked(config: PickerConfig, allowed: Allowance) -> Scheduling:
    """As `hotbay config validate` does: everything that is wrong at once."""
    problems: list[Problem] = []
    try:
        check_data_layer(config)
    except InputError as error:
        problems += error.problems
    try:
        scheduling = resolve(config, INDEX, {}, allowance=allowed)
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    return scheduling


def _checked_picker(path: Path) -> Scheduling:
    return _checked(_picker(path), Allowance())


LOADERS: dict[str, Callable[[Path], object]] = {"host": _host, "picker": _checked_picker}


def _of_kind(prefix: str) -> list[Path]:
    return [path for path in MANIFESTS if path.name.startswith(prefix)]


def test_every_manifest_is_of_a_known_kind() -> None:
    others = set(MANIFESTS) - set(_of_kind("host-")) - set(_of_kind("picker-"))
    assert {path.name for path in others} == {"endpoints.yaml"}


def test_command_finds_every_manifest_valid() -> None:
    ended = CliRunner().invoke(commands, ["config", "validate", *map(str, MANIFESTS)])
    assert ended.exit_code == 0, ended.output
    assert all(f"{path}: valid " in ended.output for path in MANIFESTS)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configuration_to_copy_is_whole_and_says_what_it_is_for_and_what_to_change(name: str) -> None:
    host, picker = (ROOT / "manifests" / f"{kind}-{name}.yaml" for kind in ("host", "picker"))
    for path in (host, picker):
        first, *others = path.read_text().splitlines()
        assert first.startswith("# ")
        assert any(line.startswith("# To change: ") for line in others)
    if name != "minimal":
        assert _host(host).scheduling.file == picker


@pytest.mark.parametrize("path", _of_kind("host-"), ids=lambda path: path.name)
def test_host_manifest_loads_and_names_a_picker_that_loads(path: Path) -> None:
    config = _host(path)
    if config.scheduling.file:
        picker = _picker(config.scheduling.file)
        assert not picker.warnings
        scheduling = resolve(picker, INDEX, binding_options(config), allowance=allowance(config))
        assert not scheduling.warnings


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


REFERENCE = sorted((ROOT / "tests" / "data" / "reference_configs").iterdir())


@pytest.mark.parametrize("group", ["llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1"], ids=["new", "old"])
@pytest.mark.parametrize("path", REFERENCE, ids=lambda path: path.stem)
def test_configuration_of_the_reference_loads_unchanged(path: Path, group: str) -> None:
    text = _text(path).replace("llm-d.ai/v1alpha1", group)
    config = load_picker_config(text, file=path.name)
    assert ("deprecated apiVersion" in [w.message for w in config.warnings]) == (group != "llm-d.ai/v1alpha1")
    scheduling = _checked(config, Allowance(allow_experimental=True))
    names = {ref.name for ref in scheduling.refs}
    assert all({entry.ref for entry in profile.entries} <= names for profile in scheduling.profiles)
    assert scheduling.profiles
