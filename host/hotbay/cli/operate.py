"""The operator's commands: what they take. Each asks a running host over its admin socket."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hotbay.cli.asking import CODES, asks
from hotbay.cli.operate_endpoints import endpoints
from hotbay.cli.operate_explain import dump, explain
from hotbay.gateway.admin_routes import ACTIONS

if TYPE_CHECKING:
    from hotbay.cli.ask import Ask

__all__ = ["OPERATOR_COMMANDS", "read_choice"]

_PLUGIN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{12,64}")
"""The host knows which one a beginning stands for."""
_REV_MAX: Final = 2**64 - 1
"""As that of a manifest, which takes too long to import."""
Choice = tuple[str, int | None, str | None]


def _plugin_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not _PLUGIN_ID.fullmatch(value):
        raise click.BadParameter(f"expected a plugin id such as my-scorers, found {value!r}")
    return value


def _target(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not _PLUGIN_ID.fullmatch(value) and not _DIGEST.fullmatch(value):
        raise click.BadParameter(f"expected a plugin id, or sha256: and 12 to 64 hex digits, found {value!r}")
    return value


def _capabilities(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    if value:
        return value
    # Imported here because the table names calls of the wire protocol, which no other command needs.
    from hotbay.capabilities import CAPABILITIES  # noqa: PLC0415

    raise click.UsageError(f"name at least one capability: {', '.join(CAPABILITIES)}", context)


def _choice(context: click.Context, parameter: click.Parameter, value: str) -> Choice:
    try:
        return read_choice(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def read_choice(text: str) -> Choice:
    """The plugin, revision and (beginning of a) digest that `ID@REV` or `ID@sha256:…` names; one of the last two is None.

    Raises:
        ValueError: it is neither.
    """
    plugin, at, build = text.partition("@")
    if at and _PLUGIN_ID.fullmatch(plugin):
        if _DIGEST.fullmatch(build):
            return plugin, None, build
        if build.isascii() and build.isdigit() and len(build) <= 20 and int(build) <= _REV_MAX:
            return plugin, int(build), None
    raise ValueError(
        f"expected ID@REV with REV from 0 to {_REV_MAX}, or ID@sha256:<12 to 64 hex digits>, found {text!r}"
    )


_plugin = click.argument("plugin", metavar="ID", callback=_plugin_id)


@click.command(epilog=CODES)
@click.option("--watch", "-w", is_flag=True, help="Go on showing it until interrupted.")
@asks
def status(ask: "Ask", *, watch: bool) -> None:
    """Show what a running host is doing."""
    ask.status(watch=watch)


@click.command(epilog=CODES)
@asks
def plan(ask: "Ask") -> None:
    """Show what `apply` would change, or what is under way.

    Changes nothing.
    """
    ask.show("/plan")


@click.command("apply", epilog=CODES)
@asks
def apply_(ask: "Ask") -> None:
    """Put the lock file, and a configuration that waits, in force.

    `hotbay plan` says first what that changes. A host without a lock file that watches its sources has nothing to wait
    for.
    """
    ask.order("/apply")


@click.command(epilog=CODES)
@click.argument("choice", metavar="ID@REV|ID@DIGEST", callback=_choice)
@asks
def pin(ask: "Ask", choice: Choice) -> None:
    """Run this revision or digest of a plugin, and stay there.

    It is rolled out like any other version. A pin may go below revisions that ran before.
    """
    plugin, rev, digest = choice
    build: dict[str, object] = {"rev": rev} if rev is not None else {"digest": digest}
    ask.order("/pin", {"plugin": plugin, **build})


@click.command(epilog=CODES)
@_plugin
@asks
def unpin(ask: "Ask", plugin: str) -> None:
    """Let the highest revision of a plugin run again."""
    ask.order("/unpin", {"plugin": plugin})


@click.command(epilog=CODES)
@_plugin
@asks
def rollback(ask: "Ask", plugin: str) -> None:
    """Go back to the version of a plugin that was live before, and stay there until `unpin`."""
    ask.order("/rollback", {"plugin": plugin})


@click.command(epilog=CODES)
@_plugin
@asks
def enable(ask: "Ask", plugin: str) -> None:
    """Start a plugin again that was disabled, by the operator or by its failures."""
    ask.order("/enable", {"plugin": plugin})


@click.command(epilog=CODES)
@_plugin
@click.option("--force", is_flag=True, help="Even if requests are refused without it.")
@asks
def disable(ask: "Ask", plugin: str, *, force: bool) -> None:
    """Drain and stop a plugin; its bindings apply their failure policy. It stays so over restarts of the host."""
    ask.order("/disable", {"plugin": plugin, "force": force})


@click.command(epilog=CODES)
@click.argument("action", type=click.Choice(ACTIONS))
@_plugin
@asks
def rollout(ask: "Ask", action: str, plugin: str) -> None:
    """Steer the rollout of a plugin that is under way.

    pause and resume its steps; promote the candidate to its next step without waiting for the verdict; abort it;
    approve one that waits for it (`swap.approve: manual`).
    """
    ask.order("/rollout", {"plugin": plugin, "action": action})


@click.group()
def quarantine() -> None:
    """Look at builds that are not run, and let them run again."""


@quarantine.command("list", epilog=CODES)
@asks
def quarantine_list(ask: "Ask") -> None:
    """Show each digest that is not run, and why."""
    ask.show("/quarantine")


@quarantine.command("clear", epilog=CODES)
@click.argument("target", metavar="ID|DIGEST", callback=_target)
@asks
def quarantine_clear(ask: "Ask", target: str) -> None:
    """Let a digest, or everything of a plugin, be run again."""
    ask.order("/quarantine/clear", {"target": target})


@click.command(epilog=CODES)
@_plugin
@click.argument("capabilities", metavar="CAP…", nargs=-1, callback=_capabilities)
@asks
def grant(ask: "Ask", plugin: str, capabilities: tuple[str, ...]) -> None:
    """Allow a plugin these capabilities and no others."""
    ask.order("/grant", {"plugin": plugin, "capabilities": list(capabilities)})


@click.command(epilog=CODES)
@_plugin
@asks
def history(ask: "Ask", plugin: str) -> None:
    """Show what of a plugin was live, since when, why, and at whose wish."""
    ask.show(f"/history/{plugin}")


@click.command(epilog=CODES)
@_plugin
@click.option("-f", "--follow", is_flag=True, help="Go on with what it writes, until interrupted.")
@click.option("-n", "--lines", type=click.IntRange(0, 10_000), default=200, show_default=True, help="Of the past.")
@asks
def logs(ask: "Ask", plugin: str, lines: int, *, follow: bool) -> None:
    """Show what a plugin's processes wrote."""
    ask.logs(plugin, lines, follow=follow)


@click.command(epilog=CODES)
@asks
def events(ask: "Ask") -> None:
    """Show what happens to plugins, as it happens, until interrupted.

    These are events of rollouts. Of endpoints, ejections and commands are in the host's log, and
    `hotbay endpoints --watch` shows who comes and goes.
    """
    ask.events()


@click.command(epilog=CODES)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@asks
def gc(ask: "Ask", *, dry_run: bool) -> None:
    """Remove packages and environments that nothing needs.

    What runs, is leased, pinned, locked or being fetched is kept, and so are the last `limits.keep_versions` versions of
    each plugin.
    """
    ask.order("/gc", {"dry_run": dry_run})


@click.command(epilog=CODES)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write or replace.")
@asks
def lock(ask: "Ask", out: Path | None) -> None:
    """Print or write a lock file: exactly the builds that are selected now.

    A host whose HostConfig names the file in `lock` runs these and nothing else.
    """
    ask.lock(out)


OPERATOR_COMMANDS: Final[tuple[click.Command, ...]] = (
    status, endpoints, plan, apply_, pin, unpin, rollback, enable, disable, rollout, quarantine, grant, history, logs, events, gc,
    lock, explain, dump,
)  # fmt: skip
