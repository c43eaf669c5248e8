"""Extensions of the host: installed distributions that run inside its process and are trusted as it is.

A distribution names modules in the entry-point group `hotbay.extensions`; a module implements hooks:

    from hotbay.extend import SourceRequest, hookimpl

    @hookimpl
    def hotbay_sources():
        return {"my-kind": lambda request: MySource(request)}

and a HostConfig uses it as `sources: [{name: x, extension: my-kind, options: {...}}]`. All extensions are loaded and checked
before any is used: one that is broken is an error that names its distribution, and nothing of it is in force. Nothing
from a plugin package passes here.
"""

import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from types import TracebackType
from typing import Final

import pluggy

from hotbay.errors import HostError, InputError, PackageError, Problem
from hotbay.packages.manifest import Blob
from hotbay.packages.sources.source import BlobStream, Scan, Source

logger = logging.getLogger(__name__)

GROUP: Final = "hotbay.extensions"
_PROJECT: Final = "hotbay"
_KIND: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")

__all__ = ["GROUP", "Extensions", "Hooks", "SourceFactory", "SourceRequest", "hookimpl", "load_extensions"]

hookspec = pluggy.HookspecMarker(_PROJECT)
hookimpl = pluggy.HookimplMarker(_PROJECT)


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """What a source of an extension is made from: the operator's entry. `poll_s` is how often to look unasked."""

    name: str
    dev: bool
    options: Mapping[str, str]
    poll_s: float


SourceFactory = Callable[[SourceRequest], Source]
"""Makes one source. Called on the loop, before it is used; raises `InputError` for options that are wrong."""


class Hooks:
    """The hooks. Each is called once, when the host starts."""

    @hookspec
    def hotbay_sources(self) -> Mapping[str, SourceFactory]:  # type: ignore[empty-body] # a specification has no body
        """Kinds of sources, by the name that a HostConfig uses: lower-case letters, digits, dots, dashes."""


@dataclass(frozen=True, slots=True)
class Extensions:
    """What the extensions add. `sources` maps a kind to its factory and to the distribution that brings it."""

    sources: Mapping[str, tuple[SourceFactory, str]]

    def make_source(self, kind: str, request: SourceRequest) -> Source:
        """A source of an extension's kind. Raises `InputError` when there is none, or when it refuses the options."""
        if kind not in self.sources:
            known = ", ".join(f"{name} ({origin})" for name, (_, origin) in sorted(self.sources.items()))
            hint = "Install the extension's distribution beside the host."
            message = f"no extension provides the kind of source {kind!r}"
            raise InputError(
                [Problem("CONFIG_INVALID", message, expected=known or "an extension", found=kind, hint=hint)]
            )
        factory, origin = self.sources[kind]
        try:
            source = factory(request)
        except HostError:
            raise
        except Exception as error:
            raise _broken(origin, f"its source {kind!r} cannot be made", error) from error
        return _Guarded(source, request, origin)


def load_extensions(found: Iterable[EntryPoint] | None = None) -> Extensions:
    """Load what is installed, or `found`. Raises `InputError` with all that is wrong, naming distributions."""
    manager = pluggy.PluginManager(_PROJECT)
    manager.add_hookspecs(Hooks)
    problems: list[Problem] = []
    for point in sorted(entry_points(group=GROUP) if found is None else found, key=_origin):
        try:
            manager.register(point.load(), name=_origin(point))
            manager.check_pending()
        except Exception as error:  # noqa: BLE001 - the boundary to other people's code: it becomes their error
            problems += _broken(_origin(point), "it cannot be loaded", error).problems
    sources: dict[str, tuple[SourceFactory, str]] = {}
    for implementation in manager.hook.hotbay_sources.get_hookimpls():
        try:
            _add_sources(sources, implementation.function(), implementation.plugin_name)
        except InputError as error:
            problems += error.problems
        except Exception as error:  # noqa: BLE001 - the boundary to other people's code: it becomes their error
            problems += _broken(implementation.plugin_name, "hotbay_sources failed", error).problems
    if problems:
        raise InputError(problems)
    for kind, (_, origin) in sources.items():
        logger.info("extension_loaded origin=%s source=%s", origin, kind)
    return Extensions(sources)


def _add_sources(sources: dict[str, tuple[SourceFactory, str]], added: object, origin: str) -> None:
    """Raises `InputError` with nothing added."""
    problems = []
    if not isinstance(added, Mapping):
        raise InputError([_problem(origin, f"hotbay_sources returned {type(added).__name__}", "Return a mapping.")])
    for kind, factory in added.items():
        if not isinstance(kind, str) or not _KIND.fullmatch(kind):
            problems.append(
                _problem(origin, f"{kind!r} is no name of a kind", "Use lower-case letters, digits, dashes.")
            )
        elif not callable(factory):
            problems.append(_problem(origin, f"the factory of {kind!r} cannot be called", "Give a function."))
        elif kind in sources:
            problems.append(_problem(origin, f"{sources[kind][1]} brings {kind!r} too", "Uninstall one of them."))
    if problems:
        raise InputError(problems)
    sources.update({kind: (factory, origin) for kind, factory in added.items()})


class _Guarded:
    """A source of an extension: whatever it raises is its failure to offer packages, told as such, and nobody else's."""

    def __init__(self, source: Source, request: SourceRequest, origin: str) -> None:
        self._source = source
        self._request = request
        self._origin = origin
        self._logged: set[str] = set()

    @property
    def name(self) -> str:
        return self._request.name

    @property
    def dev(self) -> bool:
        return self._request.dev

    async def scan(self) -> Scan:
        with self._boundary("scan"):
            scan = await self._source.scan()
            # The operator says what it is called and what it may do, not the extension.
            offers = tuple(replace(offer, source=self.name, dev=self.dev) for offer in scan.offers)
            return Scan(offers, scan.problems)

    async def wait(self) -> None:
        with self._boundary("wait"):
            await self._source.wait()

    def open_blob(
        self, location: str, blob: Blob, *, start: int = 0, validator: str | None = None
    ) -> AbstractAsyncContextManager[BlobStream]:
        with self._boundary("open_blob"):
            opened = self._source.open_blob(location, blob, start=start, validator=validator)
        return _GuardedStream(opened, self._boundary)

    def local_path(self, location: str, blob: Blob) -> str | None:
        with self._boundary("local_path"):
            return self._source.local_path(location, blob)

    async def close(self) -> None:
        with self._boundary("close"):
            await self._source.close()

    @contextmanager
    def _boundary(self, method: str) -> Iterator[None]:
        try:
            yield
        except HostError:
            raise
        except Exception as error:
            if method not in self._logged:
                self._logged.add(method)
                logger.exception("extension_failed origin=%s source=%s method=%s", self._origin, self.name, method)
            raise PackageError(
                "FETCH_FAILED",
                f"{self.name}: {method} of the extension {self._origin} failed: {error!r}",
                hint="Tell the extension's authors; the first failure is in the log with its traceback.",
                details={"origin": self._origin, "retryable": True},
            ) from error


class _GuardedStream(AbstractAsyncContextManager[BlobStream]):
    """A stream of an extension's source; what the reader raises inside is the reader's."""

    def __init__(
        self,
        opened: AbstractAsyncContextManager[BlobStream],
        boundary: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._opened = opened
        self._boundary = boundary

    async def __aenter__(self) -> BlobStream:
        with self._boundary("open_blob"):
            stream = await self._opened.__aenter__()
            return replace(stream, chunks=self._chunks(stream.chunks))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with self._boundary("open_blob"):
            return await self._opened.__aexit__(kind, error, trace)

    async def _chunks(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        with self._boundary("read"):
            async for chunk in chunks:
                yield chunk


def _origin(point: EntryPoint) -> str:
    """The distribution and the entry point's name."""
    return f"{point.dist.name} {point.dist.version} ({point.name})" if point.dist is not None else point.name


def _broken(origin: str, what: str, error: Exception) -> InputError:
    hint = "Uninstall it, or install a version that fits this host."
    return InputError([_problem(origin, f"{what}: {type(error).__name__}: {error}", hint)])


def _problem(origin: str, message: str, hint: str) -> Problem:
    return Problem("CONFIG_INVALID", f"extension {origin}: {message}", hint=hint)
