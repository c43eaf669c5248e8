"""The commands as one: their list, by whose they are, each with one line that fits 80 columns; and their end."""

from collections.abc import Mapping
from typing import Final

import click

from hotbay.cli.exit_codes import EXIT_INTERRUPTED
from hotbay.cli.failures import reader_has_left, silence_output

__all__ = ["GROUPS", "GroupedCommands"]

GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "The host": {
        "run": "Run the host and its gateway until SIGTERM or SIGINT.",
        "config": "Check configuration files, print their schema and defaults.",
        "doctor": "Look at what a host needs of this machine.",
        "bundle": "Copy packages into one folder, for a host without network.",
        "demo": "Real requests, a swap and a kill under load.",
        "sim": "Simulated vLLM servers, as many as wanted.",
        "version": "Print the versions of host, SDK and protocol.",
    },
    "For operators, of a host that runs": {
        "status": "Show what runs, what is under way, what went wrong.",
        "endpoints": "Show model servers; cordon, drain or weigh them.",
        "explain": "Show why a request went where it went.",
        "dump": "Show what plugins know.",
        "events": "Show what happens to plugins, as it happens.",
        "history": "Show what of a plugin was live, since when and why.",
        "logs": "Show what a plugin's processes wrote.",
        "plan": "Show what `apply` would change.",
        "apply": "Put the lock file, and a waiting configuration, in force.",
        "pin": "Run this build of a plugin, and stay there.",
        "unpin": "Let the highest revision of a plugin run again.",
        "rollback": "Go back to the version that was live before.",
        "rollout": "Pause, resume, promote, abort or approve a rollout.",
        "quarantine": "List builds that are not run; let them run again.",
        "disable": "Drain and stop a plugin.",
        "enable": "Start a plugin again that was disabled.",
        "grant": "Allow a plugin capabilities.",
        "lock": "Write a lock file of exactly what is live.",
        "gc": "Remove packages that nothing needs.",
    },
    "For authors of plugins": {
        "new": "Make a plugin's project: code, tests, README.",
        "dev": "Run a project in a host that puts each save in force.",
        "call": "Call one type of a plugin, without a host.",
        "conformance": "Judge a plugin by the rules of the wire protocol.",
        "deps": "Write requirements.lock of a project.",
        "pack": "Build a package from a project.",
        "publish": "Bring a package to a folder or registry.",
    },
}
"""Titles in the order in which people need them."""


class GroupedCommands(click.Group):
    """A group of commands that lists them by title. A command that has no line here is a mistake of ours."""

    def invoke(self, ctx: click.Context) -> object:
        """Carry a command out. Who interrupts it, or closes the pipe that it prints to, knows so."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            if not reader_has_left():
                raise
            silence_output()
            ctx.exit(0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for each title, all with their lines at the same column."""
        widest = max(map(len, self.commands))
        for title, lines in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), lines[name]) for name in lines])
