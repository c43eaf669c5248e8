"""`hotbay bundle`: the complete packages of a state directory as one OCI image layout, to be carried elsewhere.

Reads the store's own layout, so that it works beside a running host and without one. Every blob is hashed on its way;
the folder appears under its name whole, or not at all. A blob that is collected meanwhile is an error that says so.
Builds in quarantine are left out, and named: the host that gets the bundle knows nothing of why they are not run.
"""

import hashlib
import shutil
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import orjson

from hotbay.cli.sheet import size
from hotbay.cli.socket_path import read_host_config
from hotbay.config.wording import nearest
from hotbay.errors import InputError, PackageError, Problem, printable
from hotbay.packages.manifest import Manifest, parse_manifest
from hotbay.packages.oci import DOCUMENT_LIMIT_BYTES, Descriptor, index_bytes, parse_image, parse_index
from hotbay.store.digests import Digest, hex_of
from hotbay.store.files import writing
from hotbay.store.world.records import Quarantine
from hotbay.store.world.sqlite import read_world

__all__ = ["Bundled", "bundle_command", "write_bundle"]

STORE: Final = "store"
_MARKER_BYTES: Final = b'{"imageLayoutVersion":"1.0.0"}'
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Bundled:
    """What a bundle holds, how many bytes its blobs have, and what was left out of it."""

    manifests: tuple[Manifest, ...]
    size_bytes: int
    left_out: tuple[Manifest, ...] = ()


@dataclass(frozen=True, slots=True)
class _Package:
    entry: Descriptor
    manifest: Manifest
    blobs: tuple[tuple[Digest, int], ...]


def bundle_command(
    out: Path, plugins: Collection[str], config: Path | None, *, as_json: bool, with_quarantined: bool = False
) -> None:
    """Write the bundle of the host with this configuration, and print what is in it. Raises `HostError`."""
    host = read_host_config(config)
    state = Path(host.state_dir)
    held = {} if with_quarantined else quarantine_now(state / host.world.path, wall_s=time.time_ns() / 1e9)
    bundled = write_bundle(state / STORE, out, plugins, left_out=held)
    if as_json:
        page = {
            "out": str(out),
            "packages": [_build_page(manifest) for manifest in bundled.manifests],
            "bytes": bundled.size_bytes,
            "left_out": [{**_build_page(manifest), "why": held[manifest.digest]} for manifest in bundled.left_out],
        }
        click.echo(orjson.dumps(page, option=orjson.OPT_INDENT_2))
        return
    for manifest in bundled.left_out:
        click.echo(printable(f"left out: {_build_line(manifest)}: in quarantine, {held[manifest.digest]}"), err=True)
    for manifest in bundled.manifests:
        click.echo(printable(_build_line(manifest)))
    click.echo(f"{len(bundled.manifests)} packages, {size(bundled.size_bytes)} -> {click.format_filename(out)}")


def _build_page(manifest: Manifest) -> dict[str, object]:
    return {"plugin": manifest.id, "version": manifest.version, "rev": manifest.rev, "digest": manifest.digest}


def _build_line(manifest: Manifest) -> str:
    return f"{manifest.id} {manifest.version} rev {manifest.rev} {manifest.digest}"


def quarantine_now(world: Path, *, wall_s: float) -> Mapping[Digest, str]:
    """What is in quarantine at this moment, and why; nothing when there is no such world. Blocks. Raises `HostError`."""
    return {
        entry.digest: f"{entry.code}: {entry.reason}"
        for entry in read_world(world).all(Quarantine)
        if entry.until_s is None or entry.until_s > wall_s
    }


def write_bundle(
    store: Path, out: Path, plugins: Collection[str] = (), *, left_out: Collection[Digest] = ()
) -> Bundled:
    """Copy what `store` has complete of these plugins, or of all, to the new folder `out`. Blocks.

    `left_out` are the digests of manifests not to be copied.

    Raises:
        InputError: `out` is taken, a plugin has nothing complete, or there is no store.
        PackageError: a blob is not what it should be.
        CapacityError: the copy cannot be written.
    """
    found = [package for package in _packages(store) if not plugins or package.manifest.id in plugins]
    packages = [package for package in found if package.manifest.digest not in left_out]
    _check(store, out, found, plugins)
    _check_left(packages, found, plugins)
    blobs = {digest: size for package in packages for digest, size in package.blobs}
    with writing(out):
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".part", dir=out.parent))
        try:
            new = aside / "new"
            (new / "blobs" / "sha256").mkdir(parents=True)
            for digest, size in blobs.items():
                _copy(store, new, digest, size)
            (new / "oci-layout").write_bytes(_MARKER_BYTES)
            (new / "index.json").write_bytes(index_bytes([package.entry for package in packages]))
            new.rename(out)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    left = tuple(package.manifest for package in found if package.manifest.digest in left_out)
    return Bundled(tuple(package.manifest for package in packages), sum(blobs.values()), left)


def _check(store: Path, out: Path, packages: Collection[_Package], plugins: Collection[str]) -> None:
    problems = []
    if out.exists():
        problems.append(Problem("CONFIG_INVALID", f"{out} exists", hint="name a folder that does not"))
    elif not out.parent.is_dir():
        problems.append(Problem("CONFIG_INVALID", f"{out.parent} is no folder", hint="create it first"))
    found = sorted({package.manifest.id for package in packages})
    for plugin in sorted(set(plugins) - set(found)):
        known = nearest(plugin, [package.manifest.id for package in _packages(store)])
        hint = f"did you mean {known!r}?" if known else "`hotbay status` shows what is complete"
        problems.append(Problem("UNKNOWN_PLUGIN", f"nothing of {plugin!r} is complete in {store}", hint=hint))
    if not packages and not problems:
        hint = "packages are complete after a host ran them"
        problems.append(Problem("UNKNOWN_PLUGIN", f"nothing is complete in {store}", hint=hint))
    if problems:
        raise InputError(problems)


def _check_left(packages: Collection[_Package], found: Collection[_Package], plugins: Collection[str]) -> None:
    """Something is left to be carried, of every plugin that was named. Raises `InputError`."""
    hint = "`hotbay quarantine clear` lets it be run again; --with-quarantined takes it along as it is"
    problems = [
        Problem("CONFIG_INVALID", f"everything complete of {plugin!r} is in quarantine", hint=hint)
        for plugin in sorted({one.manifest.id for one in found} - {one.manifest.id for one in packages})
    ]
    if problems and (plugins or not packages):
        raise InputError(problems)


def _packages(store: Path) -> list[_Package]:
    try:
        index = (store / "index.json").read_bytes()
    except OSError as error:
        hint = "a host makes it when it runs; that of another configuration is found by -c FILE"
        problem = Problem("CONFIG_INVALID", f"{store} is no store: {error.strerror or error}", hint=hint)
        raise InputError([problem]) from error
    found = (_package(store, entry) for entry in parse_index(index, origin=str(store / "index.json")))
    return [package for package in found if package is not None]


def _package(store: Path, entry: Descriptor) -> _Package | None:
    image = parse_image(_document(store, entry.digest), origin=f"{store}: image {entry.digest}")
    if not image.is_plugin:
        return None
    origin = f"{store}: manifest {image.config.digest}"
    manifest = parse_manifest(_document(store, image.config.digest), origin=origin)
    named = [entry, image.config, *image.layers]
    return _Package(entry, manifest, tuple((one.digest, one.size) for one in named))


def _document(store: Path, digest: Digest) -> bytes:
    try:
        with _path(store, digest).open("rb") as file:
            content = file.read(DOCUMENT_LIMIT_BYTES + 1)
    except OSError as error:
        raise _gone(store, digest, error) from error
    if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
        raise _damaged(store, digest)
    return content


def _copy(store: Path, out: Path, digest: Digest, size: int) -> None:
    hasher, count = hashlib.sha256(), 0
    try:
        source = _path(store, digest).open("rb")
    except OSError as error:
        raise _gone(store, digest, error) from error
    with source, _path(out, digest).open("xb") as target:
        while chunk := source.read(_CHUNK_BYTES):
            hasher.update(chunk)
            count += len(chunk)
            target.write(chunk)
    if count != size or f"sha256:{hasher.hexdigest()}" != digest:
        raise _damaged(store, digest)


def _path(layout: Path, digest: Digest) -> Path:
    return layout / "blobs" / "sha256" / hex_of(digest)


def _gone(store: Path, digest: Digest, error: OSError) -> PackageError:
    hint = "a host may have collected it meanwhile: run the command again"
    return PackageError("FETCH_FAILED", f"{store}: blob {digest}: {error.strerror or error}", hint=hint)


def _damaged(store: Path, digest: Digest) -> PackageError:
    hint = "remove the file while no host runs; the next start fetches it again"
    return PackageError("DIGEST_MISMATCH", f"{_path(store, digest)}: the content is another", hint=hint)
