"""`hotbay status --watch`: pages as they come, and a host that goes away and comes back."""

import io
import json

import pytest
from hotbay.cli.admin_client import AdminClient
from hotbay.cli.exit_codes import NoHostError
from hotbay.cli.status import watch_status
from rich.console import Console


class Interrupting:
    """An AdminClient whose streams are what a test says; the last one is interrupted."""

    def __init__(self, *streams):
        self._streams = list(streams)

    def lines(self, target):
        assert target == "/status/stream"
        for item in self._streams.pop(0):
            if isinstance(item, BaseException):
                raise item
            yield item


@pytest.fixture
def page(bay):
    return AdminClient(bay.socket).get("/status")


def test_pipe_gets_page_after_page(page, capsys):
    watch_status(Interrupting([page, page], [page, KeyboardInterrupt()]), as_json=True, wait=lambda s: None)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [page] * 3


def test_host_that_is_not_there_at_the_start_is_an_error():
    with pytest.raises(NoHostError):
        watch_status(Interrupting([NoHostError("nobody")]), as_json=True, wait=lambda s: None)


def test_host_that_goes_away_is_waited_for(page, capsys):
    waits = []
    streams = [page], [NoHostError("nobody answers")], [page, KeyboardInterrupt()]
    watch_status(Interrupting(*streams), as_json=False, wait=waits.append)
    assert len(waits) == 2
    assert capsys.readouterr().out.count("hotbay 0.1.0 · ready") == 2


def test_interrupt_while_waiting_ends_quietly(page):
    def interrupted(seconds):
        raise KeyboardInterrupt

    watch_status(Interrupting([page]), as_json=True, wait=interrupted)


def test_terminal_gets_a_picture_with_a_bar(page, monkeypatch):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr("hotbay.cli.watching.Screen", lambda: console)
    streams = [page], [NoHostError("nobody answers")], [page, KeyboardInterrupt()]
    watch_status(Interrupting(*streams), as_json=False, wait=lambda s: None)
    said = file.getvalue()
    assert "━" in said
    assert "standard is downloaded: 3.0 MiB of 12.0 MiB (25 %)" in said
    assert "nobody answers; waiting for it to come back" in said


def test_real_stream_ends_with_the_iterator(bay):
    pages = AdminClient(bay.socket).lines("/status/stream?interval_ms=100")
    assert [next(pages)["version"] for _ in range(2)] == ["0.1.0"] * 2
    pages.close()
