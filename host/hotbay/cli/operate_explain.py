"""`hotbay explain` and `hotbay dump`: what they take."""

from typing import TYPE_CHECKING

import click

from hotbay.cli.asking import CODES, asks

if TYPE_CHECKING:
    from hotbay.cli.ask import Ask

__all__ = ["dump", "explain"]


@click.command(epilog=CODES)
@click.argument("request_id", metavar="[REQUEST_ID]", required=False)
@click.option(
    "--last",
    type=click.IntRange(1, 100),
    is_flag=False,
    flag_value=1,
    metavar="[N]",
    help="The newest decision instead, or the N newest, one line each.",
)
@click.option("--all", "everything", is_flag=True, help="Every endpoint, and not only the best ten.")
@asks
def explain(ask: "Ask", request_id: str | None, last: int | None, *, everything: bool) -> None:
    """Show why a request went where it went.

    REQUEST_ID is the `x-request-id` of its answer, and the `id` of its line in the log. The newest decisions are kept, as many as
    `explain` of the HostConfig says.
    """
    if (request_id is None) == (last is None):
        raise click.UsageError("name a request by REQUEST_ID, or say --last")
    if request_id is not None:
        ask.explain(request_id, everything=everything)
    elif last is not None:
        ask.explain_latest(last, everything=everything)


@click.command(epilog=CODES)
@click.argument("ref", metavar="[REF]", required=False)
@asks
def dump(ask: "Ask", ref: str | None) -> None:
    """Show what a plugin knows: the state of one REF, as the scheduling configuration names it, or of all.

    Of those alone whose types show it (`dump_state`); and what the host itself knows.
    """
    ask.dump(ref)
