"""`hotbay endpoints` and its commands: what they take."""

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec

import click

from hotbay.cli.asking import CODES, asks

if TYPE_CHECKING:
    from hotbay.cli.ask import Ask

__all__ = ["endpoints"]

P = ParamSpec("P")

_TIMEOUT_S: Final = 300.0
"""As long as an answer may be silent: what is in flight longer than that goes on writing."""


def _which(command: Callable[Concatenate["Ask", dict[str, object], P], None]) -> Callable[..., None]:
    """Give a command the endpoints that it is about, as arguments of the host's call."""

    @click.option("-l", "--selector", help="Those whose labels match, as in zone=a,!spot.")
    @click.argument("ids", metavar="[ID]…", nargs=-1)
    @wraps(command)
    def run(ask: "Ask", ids: tuple[str, ...], selector: str | None, *args: P.args, **kwargs: P.kwargs) -> None:
        if bool(ids) == (selector is not None):
            raise click.UsageError("name endpoints by ID, or by one --selector")
        command(ask, {"ids": list(ids)} if ids else {"selector": selector}, *args, **kwargs)

    return run


def _weight(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        is_weight = value == "default" or 0.0 <= float(value) <= 1.0
    except ValueError:
        is_weight = False
    if not is_weight:
        raise click.BadParameter(f"expected a number from 0 to 1, or default, found {value!r}")
    return value


@click.group(invoke_without_command=True, epilog=CODES)
@click.option("--watch", "-w", is_flag=True, help="Go on showing them until interrupted.")
@click.option("-l", "--selector", help="Those whose labels match, as in zone=a,!spot.")
@asks
def endpoints(ask: "Ask", *, watch: bool, selector: str | None) -> None:
    """Show the model servers of a running host, and what keeps requests from them.

    What the words in the table mean stands below it. The commands name endpoints by ID, of which `default/` may be left out, or by labels. What they say is kept over
    restarts of the host, and goes over what files and labels say.
    """
    ask.endpoints(selector, watch=watch)


@endpoints.command(epilog=CODES)
@asks
@_which
def cordon(ask: "Ask", which: dict[str, object]) -> None:
    """Give endpoints nothing new. What they have goes on."""
    ask.order("/endpoints/cordon", which)


@endpoints.command(epilog=CODES)
@asks
@_which
def uncordon(ask: "Ask", which: dict[str, object]) -> None:
    """Give endpoints requests again, slowly at first."""
    ask.order("/endpoints/uncordon", which)


@endpoints.command(epilog=CODES)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=_TIMEOUT_S,
    show_default=True,
    help="Seconds to wait; then what is left is printed, and stays as it is.",
)
@asks
@_which
def drain(ask: "Ask", which: dict[str, object], *, timeout_s: float) -> None:
    """Cordon endpoints, and wait until nothing of this host is in flight there."""
    ask.drain(which, timeout_s)


@endpoints.command(epilog=CODES)
@click.argument("weight", metavar="WEIGHT", callback=_weight)
@asks
@_which
def weight(ask: "Ask", which: dict[str, object], *, weight: str) -> None:
    """Give endpoints this share of an equal one's requests: 0 to 1, or `default` for what discovery says.

    One of weight 0 gets nothing new unless nothing else is left.
    """
    ask.order("/endpoints/weight", {**which, "weight": weight})
