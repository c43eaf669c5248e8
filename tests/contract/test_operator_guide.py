"""The operator guide says what the command, the socket and the configuration are."""

import re
from pathlib import Path

from hotbay.cli.exit_codes import EXIT_CONFIG, EXIT_FAILED, EXIT_NO_HOST
from hotbay.cli.main import commands
from hotbay.cli.operate import OPERATOR_COMMANDS
from hotbay.config.host_config import load_host_config
from hotbay.gateway.admin_routes import ACTIONS, ROUTES

GUIDE = (Path(__file__).parents[2] / "docs" / "operator-guide.md").read_text()
OF_AUTHORS = {"call", "conformance", "demo", "deps", "new", "pack", "publish", "run", "config", "version"}


def section(title: str) -> str:
    return GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_command_is_in_the_guide():
    named = set(re.findall(r"`([a-z]+)[^`]*`", section("Commands")))
    operators = {str(command.name) for command in OPERATOR_COMMANDS} | {"bundle", "doctor"}
    assert operators <= named
    assert set(commands.commands) - operators <= OF_AUTHORS


def test_commands_in_examples_exist():
    lines = re.findall(r"^\$ hotbay ([^#\n]+)", GUIDE, re.MULTILINE)
    assert len(lines) > 15
    for line in lines:
        words = line.split()
        command = commands.commands[words[0]]
        options = {name for parameter in command.params for name in parameter.opts}
        inner = getattr(command, "commands", None)
        if inner is not None:
            command = inner[words[1]]
            options |= {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= options, line


def test_actions_of_a_rollout_are_those_of_the_command():
    (named,) = re.findall(r"`rollout ([^ `]+) ID`", section("Commands"))
    assert tuple(named.split("\\|")) == ACTIONS


def test_exit_codes_are_those_of_the_command():
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", section("Commands"), re.MULTILINE)]
    assert codes == [0, EXIT_FAILED, 2, EXIT_NO_HOST, EXIT_CONFIG]


def test_calls_of_the_socket_are_those_of_its_table():
    expected = []
    for route in ROUTES:
        arguments = ", ".join(f"`{one.name}`" + "?" * (not one.required) for one in route.arguments)
        expected.append(f"| `{route.method} {route.path}` | {route.about} | {arguments} |")
    found = [line for line in GUIDE.splitlines() if re.match(r"\| `(GET|POST) /", line)]
    assert found == expected


def test_configuration_of_the_guide_is_read(tmp_path: Path):
    texts = re.findall(r"^```yaml\n(apiVersion: hotbay.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    (text,) = texts
    load_host_config(text, file="guide", base_directory=tmp_path, environment={}, is_root=False)


def test_links_lead_somewhere():
    docs = Path(__file__).parents[2] / "docs"
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", GUIDE)
    assert [link for link in links if not (docs / link).exists()] == []
