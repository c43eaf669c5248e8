"""What a person sees of an error: one line and what to do, never a traceback."""

import socket
import threading

import pytest
from click import UsageError
from hotbay.cli.status import fetch_status, show_status
from hotbay.errors import CapacityError


@pytest.mark.parametrize("url", ["garbage", "http://x:abc", "https://x", "http://[::1", "http://", "http://:80"])
def test_url_that_is_none_is_wrong_usage(url):
    with pytest.raises(UsageError, match="expected http://HOST:PORT"):
        fetch_status(url)


@pytest.mark.parametrize("url", ["http://a..b:1", "http://127.0.0.1:1"])
def test_host_that_is_not_there_is_said(url):
    with pytest.raises(CapacityError, match="no host answers at"):
        fetch_status(url)


@pytest.fixture
def answering():
    """Answer one request on a socket with the given bytes; returns the URL."""
    servers = []

    def answer(data):
        server = socket.create_server(("127.0.0.1", 0))

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.getsockname()[1]}"

    yield answer
    for server, thread in servers:
        thread.join(5)
        server.close()


@pytest.mark.parametrize("body", [b'{"ok": 1}', b"[]", b"<html>", b"\xff", b""])
def test_something_else_than_a_host_is_said(answering, body):
    url = answering(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    with pytest.raises(CapacityError, match="does not answer as a hotbay host does"):
        fetch_status(url)


def test_markup_in_a_plugins_error_is_shown_as_it_is(answering, capsys):
    body = (
        b'{"version": "1[/b]", "ready": true, "isolation": "none", "endpoints": [{"id": "[/x]"}], "problems": ["[/p]"],'
        b'"plugins": [{"plugin": "p", "last_error": {"code": "C", "message": "[/red]"}}]}'
    )
    show_status(answering(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)), as_json=False)
    shown = capsys.readouterr().out
    for text in ("1[/b]", "[/x]", "[/p]", "[/red]"):
        assert text in shown
