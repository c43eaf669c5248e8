"""A package source that does to a download what a proof says, and counts the bytes that it sends."""

import asyncio
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import orjson
from hotbay.packages.manifest import Manifest

from tests.integration.conftest import Packages, Text
from tests.integration.packages.remote.conftest import Reply, Request, WebFolder

__all__ = ["BLOCKS", "BLOCK_BYTES", "Fault", "FaultServer", "Request", "Site", "Version"]

BLOCK_BYTES = 256 << 10
BLOCKS = 3
FILLER_BYTES = BLOCKS * BLOCK_BYTES
PIECE_BYTES = 16 << 10


# -- the server ----------------------------------------------------------------------------------


@dataclass
class Fault:
    """What is done to one blob's bytes. Offsets are in the blob, whatever range was asked for.

    `hold_at`: send so many, then wait for `go_on`. `cut_at`: hang up there. `end_at`: say that there are no more.
    `wrong_from`: send other bytes from there on.
    """

    hold_at: int | None = None
    cut_at: int | None = None
    end_at: int | None = None
    wrong_from: int | None = None
    pace_bytes_per_s: float | None = None
    held: anyio.Event = field(default_factory=anyio.Event)
    go_on: anyio.Event = field(default_factory=anyio.Event)
    hangs_up: bool = False

    def release(self, *, hangs_up: bool = False) -> None:
        self.hangs_up = hangs_up
        self.go_on.set()

    def changed(self, reply: Reply, start: int) -> Reply:
        body, wrong = reply.body, self.wrong_from
        if wrong is not None:
            right = max(0, wrong - start)
            body = body[:right] + bytes(b ^ 0xFF for b in body[right:])
        return replace(reply, body=body if self.end_at is None else body[: max(0, self.end_at - start)])


class FaultServer(WebFolder):
    """Does to blobs what `faults` say, by the hex digits of their digests."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.faults: dict[str, Fault] = {}

    async def _send(self, writer: asyncio.StreamWriter, request: Request, reply: Reply) -> bool:
        fault = self.faults.get(request.path.rpartition("/")[2])
        if fault is None or reply.status not in (200, 206):
            return await super()._send(writer, request, reply)
        found = reply.headers.get("Content-Range")
        start = int(found.removeprefix("bytes ").partition("-")[0]) if found else 0
        reply = fault.changed(reply, start)
        headers = {"Content-Length": str(len(reply.body)), **reply.headers}
        lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} Status\r\n{lines}\r\n".encode())
        end = start + len(reply.body)
        stops = [stop for stop in (fault.hold_at, fault.cut_at) if stop is not None and stop < end]
        upto = max(start, min(stops, default=end))
        await self._pour(writer, request, reply.body[: upto - start], fault)
        if fault.cut_at is not None and upto < end:
            writer.close()
            return False
        if upto < end:
            fault.held.set()
            await fault.go_on.wait()
            if fault.hangs_up:
                return False
            await self._pour(writer, request, reply.body[upto - start :], fault)
        return True

    async def _pour(self, writer: asyncio.StreamWriter, request: Request, body: bytes, fault: Fault) -> None:
        for begin in range(0, len(body), PIECE_BYTES):
            piece = body[begin : begin + PIECE_BYTES]
            writer.write(piece)
            self.sent[request.path] = self.sent.get(request.path, 0) + len(piece)
            await writer.drain()
            if fault.pace_bytes_per_s is not None:
                await asyncio.sleep(len(piece) / fault.pace_bytes_per_s)


# -- the packages --------------------------------------------------------------------------------


@dataclass
class Site:
    """What the server offers, and what is known of it."""

    server: FaultServer
    packages: Packages
    folder: Path
    text: Text
    layouts: list[Path] = field(default_factory=list)

    @property
    def source(self) -> str:
        return f"[{{name: web, http: '{self.server.url}', poll: 200ms}}]"

    def make(
        self, rev: int, *, plugin: str = "sample", endpoint: str = "v1", again: str = "", start: str = ""
    ) -> "Version":
        """A version whose own wheel has content of its own. `again` tells contents of one revision apart."""
        out = self.folder / f"{plugin}-{rev}{again}"
        begun = self.folder / f"begun-{plugin}-{rev}{again}"
        filler = random.Random(f"{plugin} {rev} {again}").randbytes(FILLER_BYTES // 2).hex()
        source = self.text.scorer(
            endpoint, type=f"{plugin}-scorer", start=f"open({str(begun)!r}, 'a').write('s')\n{start}"
        ).replace('Plugin("sample")', f'Plugin("{plugin}")')
        manifest = self.packages.make(out, f"{source}\n# {filler}\n", id=plugin, rev=rev, types=(f"{plugin}-scorer",))
        return Version(out, manifest, begun, self.server)

    def offer(self, *versions: "Version", without: Sequence["Version"] = ()) -> None:
        """Add versions to the index; blobs come first."""
        self.layouts = [
            *(a for a in self.layouts if a not in [v.layout for v in without]),
            *(v.layout for v in versions),
        ]
        blobs = self.server.root / "blobs" / "sha256"
        blobs.mkdir(parents=True, exist_ok=True)
        for version in versions:
            for blob in (version.layout / "blobs" / "sha256").iterdir():
                if not (blobs / blob.name).exists():
                    shutil.copy(blob, blobs / blob.name)
            shutil.copy(version.layout / "oci-layout", self.server.root / "oci-layout")
        pages = [orjson.loads((layout / "index.json").read_bytes()) for layout in self.layouts]
        index = {**pages[0], "manifests": [entry for page in pages for entry in page["manifests"]]}
        beside = self.server.root / "index.new"
        beside.write_bytes(orjson.dumps(index))
        beside.rename(self.server.root / "index.json")


@dataclass(frozen=True)
class Version:
    """A package, and the file that says that its code ran."""

    layout: Path
    manifest: Manifest
    begun: Path
    server: FaultServer

    @property
    def wheel(self) -> Any:
        """The blob that is its own."""
        return next(blob for blob in self.manifest.blobs if blob.name.startswith("hotbay_plugin_"))

    @property
    def sent_bytes(self) -> int:
        return self.server.sent_of(self.wheel.digest[7:])

    @property
    def asked(self) -> list[Request]:
        return self.server.asked_for(self.wheel.digest[7:])

    @property
    def starts(self) -> int:
        return len(self.begun.read_text()) if self.begun.exists() else 0

    def fault(self, fault: Fault) -> Fault:
        self.server.faults[self.wheel.digest[7:]] = fault
        return fault

    def heal(self) -> None:
        self.server.faults.pop(self.wheel.digest[7:], None)

    def done_bytes(self, row: dict[str, Any]) -> int:
        """How many bytes of the wheel the status counts as done; the other wheels are in the store already."""
        progress = row["progress"]
        if progress is None or progress["digest"] != self.manifest.digest:
            return 0
        return max(0, int(progress["bytes"]) - (self.manifest.size_bytes - self.wheel.size))
