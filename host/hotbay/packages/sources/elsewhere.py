"""What a folder's documents lead to on other machines: one source for each address, made when it is first needed, and
closed by the scan that finds no document and no reader of it any more.

The location of such a package names the address and the place there, so that it can be fetched after a restart,
before the folder was looked at. A place that is out of reach keeps offering what it offered before.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import anyio

from hotbay.errors import HostError, PackageError, Problem
from hotbay.packages.manifest import Blob
from hotbay.packages.sources.reference import PackageReference
from hotbay.packages.sources.source import BlobStream, Offer, Scan, Source

_MARK: Final = '{"address":'
# The folder's own packages wait for this.
_SCAN_TIMEOUT_S: Final = 10.0

MakeSource = Callable[[str, str], Source]
"""Makes the source of an address: the first argument is `url` or `registry`."""

__all__ = ["Elsewhere", "MakeSource"]


class Elsewhere:
    """The sources behind one folder's documents."""

    def __init__(self, name: str, make: MakeSource | None, *, dev: bool) -> None:
        self._name = name
        self._make = make
        self._dev = dev
        self._sources: dict[tuple[str, str], Source] = {}
        self._readers: Counter[tuple[str, str]] = Counter()
        self._offered: dict[str, tuple[Offer, ...]] = {}
        self._used: tuple[tuple[str, str], ...] = ()

    @property
    def is_used(self) -> bool:
        """Whether the last scan had a reference."""
        return bool(self._used)

    async def scan(self, references: Iterable[tuple[str, PackageReference]]) -> Scan:
        """Look at all of them side by side. Raises nothing: what is out of reach is a problem of its document."""
        wanted = dict(references)
        problems: dict[str, list[Problem]] = {name: [] for name in wanted}
        self._offered = {name: self._offered.get(name, ()) for name in wanted}
        self._used = tuple(sorted({_address(reference) for reference in wanted.values()}))
        async with anyio.create_task_group() as tasks:
            for name, reference in wanted.items():
                tasks.start_soon(self._scan_one, name, reference, problems[name])
        for address in self._sources.keys() - {*self._used, *+self._readers}:
            await self._sources.pop(address).close()
        return Scan(
            tuple(offer for offers in self._offered.values() for offer in offers),
            tuple(problem for name in sorted(problems) for problem in problems[name]),
        )

    async def _scan_one(self, name: str, reference: PackageReference, problems: list[Problem]) -> None:
        kind, address = _address(reference)
        try:
            with anyio.fail_after(_SCAN_TIMEOUT_S):
                scan = await self._source(kind, address).scan()
        except TimeoutError:
            problems.append(Problem("FETCH_FAILED", f"{name}: {address} did not answer within {_SCAN_TIMEOUT_S:g} s"))
        except HostError as error:
            problems.append(Problem(error.code, f"{name}: {error.message}", hint=error.hint))
        else:
            problems += [replace(problem, message=f"{name}: {problem.message}") for problem in scan.problems]
            offers = tuple(offer for offer in scan.offers if reference.admits(offer.manifest))
            self._offered[name] = tuple(
                Offer(offer.manifest, self._name, _pack(kind, address, offer.location), self._dev) for offer in offers
            )
            if not offers:
                wanted = f"{reference.id} {reference.digest or ''}".strip()
                problems.append(Problem("FETCH_FAILED", f"{name}: {address} offers no {wanted}"))

    async def wait(self) -> None:
        """Return when any of them might have changed."""
        async with anyio.create_task_group() as tasks:

            async def one(source: Source) -> None:
                try:
                    await source.wait()
                except HostError:
                    # The scan that follows says what is wrong; it must not follow at once for ever.
                    await anyio.sleep(_SCAN_TIMEOUT_S)
                tasks.cancel_scope.cancel()

            for kind, address in self._used:
                if (kind, address) in self._sources:
                    tasks.start_soon(one, self._sources[kind, address])
            await anyio.sleep_forever()

    def knows(self, location: str) -> bool:
        """Whether the location is one of those given out here."""
        return location.startswith(_MARK)

    @asynccontextmanager
    async def open_blob(
        self, location: str, blob: Blob, *, start: int, validator: str | None
    ) -> AsyncIterator[BlobStream]:
        kind, address, inner = _unpack(location)
        self._readers[kind, address] += 1
        try:
            async with self._source(kind, address).open_blob(inner, blob, start=start, validator=validator) as stream:
                yield stream
        finally:
            self._readers[kind, address] -= 1
            self._readers += Counter()

    def local_path(self, location: str, blob: Blob) -> str | None:
        kind, address, inner = _unpack(location)
        return self._source(kind, address).local_path(inner, blob)

    async def close(self) -> None:
        """Close all. Idempotent."""
        sources, self._sources = self._sources, {}
        for source in sources.values():
            await source.close()

    def _source(self, kind: str, address: str) -> Source:
        """Raises `HostError` when there can be none."""
        if self._make is None:
            raise PackageError("FETCH_FAILED", f"references by {kind} are not possible here")
        if (kind, address) not in self._sources:
            self._sources[kind, address] = self._make(kind, address)
        return self._sources[kind, address]


def _address(reference: PackageReference) -> tuple[str, str]:
    if reference.url is not None:
        return "url", reference.url
    assert reference.registry is not None, "references by layout are not elsewhere"
    return "registry", reference.registry


def _pack(kind: str, address: str, location: str) -> str:
    return json.dumps({"address": address, "kind": kind, "location": location}, separators=(",", ":"))


def _unpack(location: str) -> tuple[str, str, str]:
    found = json.loads(location)
    return found["kind"], found["address"], found["location"]
