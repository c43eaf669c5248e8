"""What a person sees of an error: one line and what to do, never a traceback."""

import socket
import threading

import pytest
from hotbay.cli.admin_client import AdminClient
from hotbay.cli.exit_codes import NoHostError, exit_code
from hotbay.cli.status import fetch_status, show_status
from hotbay.errors import CapacityError, HostError, InputError, PackageError, PluginFault, Problem


def test_nobody_at_the_socket_is_said(tmp_path):
    with pytest.raises(NoHostError, match=r"no host answers at .*admin.sock: No such file"):
        AdminClient(tmp_path / "admin.sock").get("/status")
    with pytest.raises(NoHostError, match=r"no host answers at .*nowhere"):
        AdminClient(tmp_path / "nowhere" / "admin.sock").get("/status")


def test_socket_of_a_host_that_died_is_said(tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "admin.sock"))
    with pytest.raises(NoHostError, match="Connection refused"):
        AdminClient(tmp_path / "admin.sock").get("/status")


def test_socket_of_somebody_else_names_the_user(monkeypatch, tmp_path):
    def refused(path, timeout_s):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("hotbay.gateway.admin_connection.connect_private", refused)
    with pytest.raises(NoHostError) as caught:
        AdminClient(tmp_path / "admin.sock").get("/status")
    assert "as the host's user" in caught.value.hint


@pytest.fixture
def answering(tmp_path):
    """Answer one request on a socket with the given bytes; returns a client."""
    servers = []

    def answer(data):
        server = socket.socket(socket.AF_UNIX)
        path = tmp_path / f"{len(servers)}.sock"
        server.bind(str(path))
        server.listen()

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        servers.append((server, thread))
        return AdminClient(path)

    yield answer
    for server, thread in servers:
        thread.join(5)
        server.close()


def ok(body):
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize("body", [b"[]", b"<html>", b"\xff", b"", b'{"ok": 1}'])
def test_something_else_than_a_host_is_said(answering, body):
    with pytest.raises(CapacityError) as caught:
        fetch_status(answering(ok(body)))
    assert "no host's" in caught.value.message or "is no hotbay host of this version" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("data", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"])
def test_host_that_breaks_off_is_said(answering, data):
    with pytest.raises(CapacityError, match="did not answer") as caught:
        answering(data).get("/status")
    assert not isinstance(caught.value, NoHostError)
    assert "look at its log" in caught.value.hint


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b'{"code": 1}'])
def test_error_page_that_is_none_names_the_status(answering, body):
    data = b"HTTP/1.1 502 Bad\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    with pytest.raises(CapacityError, match="HTTP status 502"):
        answering(data).post("/apply", {})


def test_host_that_refuses_before_the_body_came_is_heard(answering):
    body = b'{"error": "CapacityError", "code": "RESOURCE_EXHAUSTED", "message": "m", "hint": "", "problems": []}'
    client = answering(b"HTTP/1.1 503 No\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    with pytest.raises(CapacityError, match="RESOURCE_EXHAUSTED: m"):
        client.post("/grant", {"capabilities": ["c" * 200] * 20_000})


def test_stream_ends_with_the_hosts_error(answering):
    error = b'{"error": "PackageError", "code": "C", "message": "m", "hint": "h", "problems": []}'
    data = b'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{"line": "a"}\n%b\n' % error
    lines = answering(data).lines("/logs/p?follow=true")
    assert next(lines) == {"line": "a"}
    with pytest.raises(PackageError, match="C: m"):
        next(lines)
    with pytest.raises(CapacityError, match="no host's"):
        list(answering(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nnonsense\n").lines("/events"))


def test_markup_in_a_plugins_error_is_shown_as_it_is(answering, capsys):
    body = (
        b'{"version": "1[/b]", "ready": true, "isolation": "none", "endpoints": [{"id": "[/x]"}], "problems": ["[/p]"],'
        b'"plugins": [{"plugin": "p", "last_error": {"code": "C", "message": "[/red]"}}]}'
    )
    show_status(answering(ok(body)), as_json=False)
    shown = capsys.readouterr().out
    for text in ("1[/b]", "[/x]", "[/p]", "[/red]"):
        assert text in shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError([Problem("C", "m")]), 78),
        (InputError([Problem("UNKNOWN_PLUGIN", "there is no plugin 'p'")]), 78),
        (InputError([Problem("UNAVAILABLE", "nothing to abort: p is live")]), 1),
        (InputError([Problem("RESOURCE_EXHAUSTED", "cannot be read now: Too many open files")]), 1),
        (PackageError("C", "m"), 1),
        (PluginFault("C", "m"), 1),
        (CapacityError("C", "m"), 1),
        (HostError("C", "m"), 1),
        (NoHostError("m"), 69),
    ],
)
def test_exit_code_says_who_must_act(error, code):
    assert exit_code(error) == code
