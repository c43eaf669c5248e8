"""Certificates of a small authority, and a server whose answers a test sets."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata


class Authority:
    """Files of one authority: `ca`, and a certificate with its key for each name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = folder / "ca.pem"
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority",
        )  # fmt: skip

    def issue(self, name: str, subject: str) -> tuple[Path, Path]:
        """A certificate for an alternative name such as `IP:127.0.0.1`."""
        (self.folder / f"{name}.ext").write_text(f"subjectAltName={subject}\n")
        self._openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}",
        )  # fmt: skip
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", f"{name}.ext", "-out", f"{name}.pem",
        )  # fmt: skip
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True, timeout=30)


class Server:
    """Answers each path with (status line, further header lines, body) from `pages`; `asked` are the paths asked for."""

    def __init__(self) -> None:
        self.port = 0
        self.pages: dict[str, tuple[str, str, bytes]] = {}
        self.asked: list[str] = []
        self.connections = 0
        self._listener: asyncio.Server | None = None

    def page(self, path: str, body: bytes, *, status: str = "200 OK", headers: str = "") -> None:
        self.pages[path] = (status, headers, body)

    def endpoint(self, name: str = "a", namespace: str = "n") -> EndpointMetadata:
        return EndpointMetadata(f"{namespace}/{name}", name, "127.0.0.1", self.port)

    async def listen(self, context: ssl.SSLContext | None = None) -> None:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                path = request.split(b" ", 2)[1].decode()
                self.asked.append(path)
                status, headers, body = self.pages.get(path, ("404 Not Found", "", b""))
                head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.transport.abort()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    """Every test here runs on both loops."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture
async def serve(anyio_backend: object) -> AsyncIterator[Callable[..., Awaitable[Server]]]:
    """Start servers; all end with the test."""
    started: list[Server] = []

    async def start(context: ssl.SSLContext | None = None) -> Server:
        started.append(Server())
        await started[-1].listen(context)
        return started[-1]

    yield start
    for server in started:
        await server.close()
