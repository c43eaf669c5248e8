"""How commands end that nobody wants the end of any more."""

import click
import pytest
from click.testing import CliRunner
from hotbay.cli.grouped import GroupedCommands


def commands_that_raise(error: BaseException) -> click.Group:
    group = GroupedCommands()

    @group.command()
    def command() -> None:
        raise error

    return group


def test_interrupt_says_nothing_and_has_the_code_of_a_shell() -> None:
    ended = CliRunner().invoke(commands_that_raise(KeyboardInterrupt()), ["command"])
    assert (ended.exit_code, ended.output) == (130, "")


def test_other_pipes_that_break_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotbay.cli.grouped.reader_has_left", lambda: False)
    ended = CliRunner().invoke(commands_that_raise(ConnectionResetError(104, "reset")), ["command"])
    assert isinstance(ended.exception, ConnectionResetError)
