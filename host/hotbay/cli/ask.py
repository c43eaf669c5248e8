"""Carries out the operator's commands: asks the host, prints what it says, in the form that was asked for."""

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import orjson

from hotbay.cli.admin_client import AdminClient
from hotbay.cli.answers import answer_sheet
from hotbay.cli.endpoints import drain_endpoints, show_endpoints, watch_endpoints
from hotbay.cli.explain import explain_latest, explain_request, show_states
from hotbay.cli.lines import log_line
from hotbay.cli.sheet import Screen, moment, rows
from hotbay.cli.socket_path import find_socket
from hotbay.cli.status import show_status, watch_status
from hotbay.errors import InputError, Place, Problem, printable

__all__ = ["Ask", "At"]

Page = Mapping[str, object]

LOCK_NAME: Final = "hotbay.lock"


@dataclass(frozen=True, slots=True)
class At:
    """Which host, and how answers are printed."""

    socket: Path | None
    config: Path | None
    as_json: bool


class Ask:
    """One command. Every method raises `HostError`, of the host or that no host answers."""

    def __init__(self, at: At) -> None:
        self._at = at
        path = at.socket if at.socket is not None else find_socket(at.config)
        self._client = AdminClient(path)

    def show(self, target: str) -> None:
        """Print what the host says."""
        self._print(self._client.get(target))

    def order(self, target: str, arguments: Page | None = None) -> None:
        """Have something done, and print what was."""
        self._print(self._client.post(target, arguments or {}))

    def status(self, *, watch: bool) -> None:
        """Print the status, once or until interrupted."""
        (watch_status if watch else show_status)(self._client, as_json=self._at.as_json)

    def endpoints(self, selector: str | None, *, watch: bool) -> None:
        """Print the endpoints, or those whose labels match, once or until interrupted."""
        (watch_endpoints if watch else show_endpoints)(self._client, selector, as_json=self._at.as_json)

    def drain(self, which: Page, timeout_s: float) -> None:
        """Cordon endpoints, and print what is in flight there until nothing is. Raises when `timeout_s` has passed."""
        drain_endpoints(self._client, which, timeout_s, as_json=self._at.as_json)

    def explain(self, request_id: str, *, everything: bool) -> None:
        """Print why the decisions for a request came out so."""
        explain_request(self._client, request_id, everything=everything, as_json=self._at.as_json)

    def explain_latest(self, count: int, *, everything: bool) -> None:
        """Print the newest decisions."""
        explain_latest(self._client, count, everything=everything, as_json=self._at.as_json)

    def dump(self, ref: str | None) -> None:
        """Print what one ref shows of its state, or all."""
        show_states(self._client, ref, as_json=self._at.as_json)

    def logs(self, plugin: str, lines: int, *, follow: bool) -> None:
        """Print the last lines that a plugin wrote, and with `follow` those that it writes."""
        target = f"/logs/{plugin}?lines={lines}"
        if follow:
            self._stream(f"{target}&follow=true", log_line)
            return
        page = self._client.get(target)
        if self._at.as_json:
            self._print(page)
            return
        for line in rows(page.get("lines")):
            click.echo(log_line(line))

    def events(self) -> None:
        """Print what happens until interrupted."""
        self._stream("/events", _event)

    def lock(self, out: Path | None) -> None:
        """Print the lock file, or write it."""
        page = self._client.get("/lock")
        text = orjson.dumps(page, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        if out is None:
            click.echo(text, nl=False)
            return
        _replace(out, text)
        click.echo(f"wrote {click.format_filename(out)}; name it in HostConfig's `lock`, see `hotbay plan`", err=True)

    def _stream(self, target: str, text: Callable[[Page], str]) -> None:
        try:
            with closing(self._client.lines(target)) as pages:
                for page in pages:
                    click.echo(orjson.dumps(page) if self._at.as_json else text(page))
        except KeyboardInterrupt:
            return

    def _print(self, page: Page) -> None:
        if self._at.as_json:
            click.echo(orjson.dumps(page, option=orjson.OPT_INDENT_2))
        else:
            answer_sheet(page).print(Screen())


def _event(page: Page) -> str:
    at_s, name = page.get("at_s"), page.get("event")
    parts = [
        f"{key}={value}" for key, value in page.items() if key not in ("at_s", "event") and value not in (None, "")
    ]
    from_day = moment(at_s) if isinstance(at_s, int | float) else ""
    return printable(" ".join(str(part) for part in [from_day, name, *parts] if part)).replace("\n", "\\n")


def _replace(out: Path, text: bytes) -> None:
    """Write the file whole or not at all."""
    try:
        descriptor, aside = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(aside).chmod(0o644)
        Path(aside).replace(out)
    except OSError as error:
        hint = "name a file in a folder that you may write"
        problem = Problem("CONFIG_INVALID", error.strerror or "cannot be written", Place(str(out)), hint=hint)
        raise InputError([problem]) from error
