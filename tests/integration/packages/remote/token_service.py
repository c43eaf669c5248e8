"""A registry's token service: gives the right password's owner what it asks for, signed by a key that the registry trusts.

The token is a JWT as the registry's own documentation has it: RS256, with the certificate in `x5c`. openssl signs.
"""

import base64
import json
import secrets
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

ISSUER, SERVICE = "tests", "registry-of-tests"
LIFE_S = 300


def make_key(folder: Path) -> tuple[Path, Path]:
    """A certificate and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tests",
        "-out", str(certificate), "-keyout", str(key),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return certificate, key


def _coded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenService(ThreadingHTTPServer):
    """`asked` lists the scopes of all requests, `given` counts tokens."""

    daemon_threads = True

    def __init__(self, certificate: Path, key: Path, user: str, password: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self.user = user
        self.asked: list[str] = []
        self.given = 0
        self._key = key
        lines = certificate.read_text().split("-----")[2]
        self._x5c = ["".join(lines.split())]

    def token(self, scope: str) -> str:
        """Signed access to what a scope names, `repository:NAME:ACTION,ACTION`."""
        kind, name, actions = scope.split(":")
        now = int(time.time())  # noqa: TID251 - the registry compares it with its own wall clock
        claims = {
            "iss": ISSUER, "sub": self.user, "aud": SERVICE, "jti": secrets.token_hex(8),
            "exp": now + LIFE_S, "nbf": now - 10, "iat": now,
            "access": [{"type": kind, "name": name, "actions": actions.split(",")}],
        }  # fmt: skip
        head = {"typ": "JWT", "alg": "RS256", "x5c": self._x5c}
        signed = f"{_coded(json.dumps(head).encode())}.{_coded(json.dumps(claims).encode())}"
        command = ["openssl", "dgst", "-sha256", "-sign", str(self._key)]
        made = subprocess.run(command, input=signed.encode(), check=True, capture_output=True, timeout=60)
        self.given += 1
        return f"{signed}.{_coded(made.stdout)}"


class _Handler(BaseHTTPRequestHandler):
    server: TokenService

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        (scope,) = query.get("scope", [""])
        self.server.asked.append(scope)
        if self.headers.get("authorization") != self.server.expected or query.get("service") != [SERVICE]:
            self._say(401, {"errors": [{"code": "UNAUTHORIZED"}]})
        else:
            self._say(200, {"token": self.server.token(scope), "expires_in": LIFE_S})

    def _say(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


@contextmanager
def token_service(folder: Path, user: str, password: str) -> Iterator[tuple[TokenService, Path]]:
    """The service and the certificate that a registry is to trust."""
    certificate, key = make_key(folder)
    service = TokenService(certificate, key, user, password)
    thread = threading.Thread(target=service.serve_forever, daemon=True)
    thread.start()
    try:
        yield service, certificate
    finally:
        service.shutdown()
        service.server_close()
        thread.join()
