"""The operator guide says what the command, the socket, the configuration and the code's own tables are."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from hotbay.capabilities import CAPABILITIES
from hotbay.cli.exit_codes import EXIT_CONFIG, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NO_HOST
from hotbay.cli.following import LIVE_FIELDS
from hotbay.cli.main import commands
from hotbay.cli.operate import OPERATOR_COMMANDS
from hotbay.config.data_parameters import TLS_FIELDS
from hotbay.config.data_sources import read_data_layer
from hotbay.config.data_types import BUILTIN_FORMS, Point
from hotbay.config.discovery_parameters import DISCOVERIES
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.config.picker_config import load_picker_config
from hotbay.errors import InputError
from hotbay.gateway.admin_routes import ACTIONS, ROUTES
from hotbay.packages.sources.reference import read_reference
from hotbay.rollout.rows import LIVE
from hotbay.rollout.state import Phase
from hotbay.rollout.verdicts import CanaryPolicy, GuardPolicy, Limits, ShadowPolicy
from hotbay_sdk.protocol import ErrorCode
from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDE = (DOCS / "operator-guide.md").read_text()
OF_AUTHORS = {"call", "conformance", "demo", "deps", "dev", "new", "pack", "publish", "run", "config", "sim", "version"}
# Tools of authors, with codes of their own; the demo; the simulator; and the gateway's answers to clients.
NO_OPERATORS = ("authoring", "conformance", "demo", "gateway", "sim")
SOURCES = [name for name, form in BUILTIN_FORMS.items() if Point.SOURCE in form.points]
EXTRACTORS = [name for name, form in BUILTIN_FORMS.items() if Point.EXTRACT in form.points]
FAULTS = {"Problem", "InputError", "PackageError", "PluginFault", "CapacityError", "Failure", "ErrorShown", "HostError"}
FAULTS |= {"report", "warn", "refused"}


def section(title: str) -> str:
    found = GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, title
    return found


def rows(title: str) -> list[list[str]]:
    """Cells of a section's tables, without the lines that make them tables."""
    lines = re.findall(r"^\| (.*) \|$", section(title), re.MULTILINE)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines if not line.startswith("--")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


# -- commands --------------------------------------------------------------------------------------


def test_every_command_is_in_the_guide():
    named = set(re.findall(r"`([a-z]+)[^`]*`", section("Commands")))
    operators = {str(command.name) for command in OPERATOR_COMMANDS} | {"bundle", "doctor"}
    assert operators <= named
    assert set(commands.commands) - operators <= OF_AUTHORS


def test_commands_in_examples_exist():
    lines = re.findall(r"^\$ hotbay ([^#\n]+)", GUIDE, re.MULTILINE)
    assert len(lines) > 40
    for line in lines:
        check_command(line.split())


def test_commands_in_the_text_exist():
    found = re.findall(r"`hotbay ([^`…]+)`", GUIDE)
    assert len(found) > 20
    for line in found:
        check_command(line.split())


def check_command(words: list[str]) -> None:
    command = commands.commands[words[0]]
    inner = getattr(command, "commands", None)
    if inner is not None and len(words) > 1 and not words[1].startswith("-"):
        command = inner[words[1]]
    options = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options, words


def test_actions_of_a_rollout_are_those_of_the_command():
    (named,) = re.findall(r"`rollout ([^ `]+) ID`", section("Commands"))
    assert tuple(named.split("\\|")) == ACTIONS


def test_exit_codes_are_those_of_the_command():
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", section("Commands"), re.MULTILINE)]
    assert codes == [0, EXIT_FAILED, 2, EXIT_NO_HOST, EXIT_CONFIG, EXIT_INTERRUPTED]


def test_calls_of_the_socket_are_those_of_its_table():
    expected = []
    for route in ROUTES:
        arguments = ", ".join(f"`{one.name}`" + "?" * (not one.required) for one in route.arguments)
        expected.append(f"| `{route.method} {route.path}` | {route.about} | {arguments} |")
    found = [line for line in GUIDE.splitlines() if re.match(r"\| `(GET|POST) /", line)]
    assert found == expected


# -- configuration ---------------------------------------------------------------------------------


def load(text: str, folder: Path) -> HostConfig:
    return load_host_config(text, file="guide", base_directory=folder, environment={"HOME": "/home/x"}, is_root=False)


def test_configurations_of_the_guide_are_read(tmp_path: Path):
    kinds = []
    for text in blocks("yaml"):
        kind = yaml.safe_load(text)["kind"]
        kinds.append(kind)
        if kind == "HostConfig":
            config = load(text, tmp_path)
            load_picker_config(config.scheduling.text or "", file="guide")
        elif kind == "PackageRef":
            (tmp_path / "ref.yaml").write_text(text)
            read_reference(tmp_path / "ref.yaml")
        else:
            assert not read_data_layer(load_picker_config(text, file="guide")).warnings
    assert sorted(kinds) == ["EndpointPickerConfig"] * 4 + ["HostConfig"] * 3 + ["PackageRef"]


def test_sources_and_extractors_of_the_guide_are_those_of_the_host():
    named = [cells[0].strip("`") for cells in rows("Data layer")]
    assert [name for name in named if name in BUILTIN_FORMS] == [*sorted(SOURCES, key=named.index), *EXTRACTORS]
    parameters = {name for cells in rows("Data layer") for name in re.findall(r"`([a-zA-Z]+)", cells[0])}
    assert {"scheme", "port", "interval", *TLS_FIELDS} <= parameters


def test_discoveries_of_the_guide_and_their_parameters_are_those_of_the_host():
    named = {
        cells[0].strip("`"): set(re.findall(r"`([a-zA-Z]+)` ?(?:\(|,|$)", cells[1])) for cells in rows("Discovery")[1:]
    }
    known = {}
    for kind, read in DISCOVERIES.items():
        head = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
        config = load_picker_config(f"{head}plugins: [{{type: {kind}, parameters: {{qqqqqq: 1}}}}]", file="guide")
        with pytest.raises(InputError) as caught:
            read(config, config.plugins[0])
        hint = next(problem.hint for problem in caught.value.problems if problem.code == "UNKNOWN_FIELD")
        known[kind] = set(hint.removeprefix("known here: ").split(", "))
    assert named == known


def sections_in(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """Models in a field's type, and how a path goes on to them: through a list, or a name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, ""
    through = {tuple: "[]", Mapping: ".REF"}.get(get_origin(annotation), "")
    for argument in get_args(annotation):
        for model, rest in sections_in(argument):
            yield model, through + rest


def keys_of(model: type[BaseModel], before: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = before + (field.alias or name)
        inner = list(sections_in(field.annotation))
        for found, rest in inner:
            yield from keys_of(found, f"{key}{rest}.")
        if not inner:
            yield key


def fields() -> list[list[str]]:
    return [row for row in rows("Configuration") if row[0].startswith("`")]


def test_keys_of_the_guide_are_those_of_a_host_config():
    assert [row[0].strip("`") for row in fields()] == list(keys_of(HostConfig))


NEEDED: dict[str, Any] = {
    "hosts": [{"platform": "python-cp311-linux-x86_64"}],
    "endpoints": [{"url": "http://127.0.0.1:1"}],
    "sources": [{"name": "x", "directory": "x"}],
    "packages": [{"id": "x"}],
    "bindings": {"x": {}},
}


def test_defaults_of_the_guide_are_what_holds_without_the_key(tmp_path: Path):
    head = {"apiVersion": "hotbay/v1alpha1", "kind": "HostConfig", **NEEDED}
    without = load(yaml.safe_dump(head), tmp_path).model_dump()
    wrong = []
    for key, default, *_ in fields():
        if default == "–":
            continue
        document = yaml.safe_load(yaml.safe_dump(head))
        *way, last = key.strip("`").replace("[]", ".0").replace(".REF", ".x").split(".")
        place: Any = document
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
        place[last] = yaml.safe_load(default.strip("`"))
        if load(yaml.safe_dump(document), tmp_path).model_dump() != without:
            wrong.append(key)
    assert wrong == []


def test_when_a_key_acts_is_what_the_command_says():
    for key, _, _, acts in fields():
        top = re.split(r"[.\[]", key.strip("`"))[0]
        if acts != "–":
            assert (acts != "next start") == (top in LIVE_FIELDS), key


# -- the code's own tables ---------------------------------------------------------------------------


def test_phases_of_the_guide_are_those_of_a_rollout():
    text = section("The steps of a swap")
    named = set(re.findall(r"`([a-z ]+)`", text))
    shown = {str(phase) for phase in Phase} | {LIVE}
    assert shown <= named


def test_numbers_of_the_steps_are_those_of_the_code():
    text, shadow, canary, guard, limits = (
        section("The steps of a swap"), ShadowPolicy(), CanaryPolicy(), GuardPolicy(), Limits()
    )  # fmt: skip
    for told in (
        f"after {shadow.for_s:g} s or {shadow.calls} calls",
        f"answers {canary.share:.0%} of".replace("%", " %"),
        f"after {canary.for_s:g} s and {canary.min_requests} requests, or {canary.at_most_s:g} s",
        f"after {guard.for_s:g} s and {guard.calls} calls, or {guard.at_most_s:g} s",
        f"| `failures` | calls that raised, came late or gave nothing usable | {limits.failures * 100:g} % |",
        f"slower than {limits.slow_factor:g} × the live version's p99, and {limits.slow_s * 1000:g} ms | 1 % |",
        f"later than {limits.ttft_factor:g} × the live 95th percentile, and {limits.ttft_s * 1000:g} ms | 5 % |",
        f"{limits.memory_factor:g} × the live one's, and {limits.memory_more_bytes >> 20} MiB more",
    ):
        assert told in text


def test_capabilities_of_the_guide_are_those_of_the_host():
    found = {row[0].strip("`"): row[1] for row in rows("Tour") if row[0].startswith("`")}
    assert found == {name: capability.allows for name, capability in CAPABILITIES.items()}


def codes_in(tree: ast.AST) -> Iterator[str]:
    """Codes that errors are made with: the first arguments of what makes them, and the second of a failure."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in FAULTS:
            for argument in node.args[:2]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


def test_codes_of_the_guide_are_those_that_an_operator_meets():
    code = re.compile(r"[A-Z]+(_[A-Z]+)*")
    sources = [
        path for path in (ROOT / "host" / "hotbay").rglob("*.py") if not {*path.parts}.intersection(NO_OPERATORS)
    ]
    made = {
        found for path in sources for found in codes_in(ast.parse(path.read_text())) if code.fullmatch(found)
    } | {str(one) for one in ErrorCode}  # fmt: skip
    told = [row[0] for row in rows("Errors") if code.fullmatch(row[0])]
    everything = "".join(path.read_text() for path in (ROOT / "host" / "hotbay").rglob("*.py"))
    assert told == sorted(told)
    assert made <= set(told)
    assert [one for one in told if one not in made and f'"{one}"' not in everything] == []


def test_events_of_the_guide_are_written():
    text = "".join(path.read_text() for path in (ROOT / "host" / "hotbay").rglob("*.py"))
    events = [event for row in rows("The log") for event in re.findall(r"`([a-z_]+)`", row[0])]
    assert len(events) > 20
    assert [event for event in events if not re.search(rf'"{event}\b', text)] == []


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", GUIDE)
    assert [link for link in links if not (DOCS / link).exists()] == []


def test_links_within_the_guide_lead_to_a_heading():
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", GUIDE, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert [link for link in re.findall(r"\]\(#([^)]+)\)", GUIDE) if link not in anchors] == []
