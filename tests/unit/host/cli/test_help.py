"""The list of commands: whole sentences, by whose they are."""

import click
from click.testing import CliRunner
from hotbay.cli.lines import log_line
from hotbay.cli.main import commands
from hotbay.cli.new import new

WIDTH = 80


def listed() -> list[str]:
    result = CliRunner().invoke(commands, ["--help"], terminal_width=WIDTH)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_every_command_is_in_one_group_with_a_line_that_is_not_cut():
    lines = listed()
    assert max(map(len, lines)) <= WIDTH
    assert not any(line.endswith("...") for line in lines if not line.startswith("Usage:"))
    begun = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    named = [word for word in begun if not word.startswith("-")]
    assert sorted(named) == sorted({*commands.commands, "A"})


def test_groups_are_in_the_order_in_which_people_need_them():
    titles = [line for line in listed() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options:", "The host:", "For operators, of a host that runs:", "For authors of plugins:"]


def test_new_takes_both_words_for_a_point():
    (option,) = (parameter for parameter in new.params if parameter.name == "point")
    assert isinstance(option.type, click.Choice)
    assert option.type.convert("score", option, None) == "scorer"
    assert option.type.convert("profile_handler", option, None) == "profile-handler"


def test_line_of_a_log_says_when_of_what_and_where():
    line = {"at_s": 1_760_000_000.0, "rev": 2, "generation": 7, "pid": 31, "stream": "stderr", "line": "x\x1b[2J"}
    assert log_line(line) == "2025-10-09 08:53:20Z rev 2 #7 pid 31 stderr: x\\x1b[2J"


def test_line_of_a_log_leaves_out_what_nobody_knows():
    assert log_line({"line": "x"}) == "x"
    assert log_line({"stream": "host", "line": "dropped 3 bytes", "pid": None}) == "host: dropped 3 bytes"
