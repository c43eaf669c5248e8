"""`hotbay publish`: brings the packages of a layout to where hosts look for them. Every byte is checked first.

What was published is never exchanged: a revision that is there with other content is a conflict. Publishing the same
again changes nothing.
"""

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import httpx

from hotbay.errors import InputError, Problem
from hotbay.packages.publish_folder import add_entries, add_to_layout
from hotbay.packages.publish_registry import push
from hotbay.packages.published import Published, read_built
from hotbay.packages.sources.addresses import RegistryReference, is_registry_reference, parse_reference
from hotbay.packages.sources.credentials import Credentials
from hotbay.packages.sources.registry_client import RegistryClient
from hotbay.packages.sources.web import Limits

logger = logging.getLogger(__name__)

__all__ = ["Folder", "Published", "Target", "parse_target", "publish", "publish_command"]


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of packages, one in each entry, or, `as_layout`, one OCI layout for all. A layout that is there is one."""

    path: Path
    as_layout: bool = False


Target = Folder | RegistryReference


def parse_target(text: str, *, as_layout: bool = False) -> Target:
    """Reads `HOST[:PORT]/NAME[:TAG]` as a registry, all else, and whatever is there as a folder, as a folder.

    Raises InputError CONFIG_INVALID.
    """
    path = Path(text)
    if as_layout or path.exists() or not is_registry_reference(text):
        return Folder(path, as_layout)
    try:
        reference = parse_reference(text)
        if reference.digest is not None:
            raise ValueError("may not name a digest: that comes of what is published")
    except ValueError as error:
        hint = f"A folder of this name is written ./{text}."
        raise InputError([Problem("CONFIG_INVALID", f"{text}: as a registry it {error}", hint=hint)]) from error
    return reference


async def publish(
    layout: Path,
    target: Target,
    *,
    auth: Credentials | None = None,
    ca_file: Path | None = None,
    mounts_from: str | None = None,
    limits: Limits | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> tuple[Published, ...]:
    """Publishes every package in `layout`. `mounts_from` names a repository of the same registry that may hold the wheels.

    Raises:
        InputError: CONFIG_INVALID: no package here, or something else there.
        PackageError: DIGEST_CONFLICT for a revision that is there with other content, FETCH_FAILED for a registry that
            does not take it, or what is wrong with the package.
    """
    packages = await anyio.to_thread.run_sync(read_built, layout)
    if isinstance(target, Folder):
        is_layout = target.as_layout or await anyio.to_thread.run_sync((target.path / "oci-layout").exists)
        add = add_to_layout if is_layout else add_entries
        published = await anyio.to_thread.run_sync(add, packages, target.path)
    else:
        client = RegistryClient(
            target,
            credentials=auth,
            pushes=True,
            mounts_from=mounts_from,
            ca_file=ca_file,
            limits=limits,
            transport=transport,
        )
        try:
            published = await push(packages, client)
        finally:
            await client.close()
    for done in published:
        manifest = done.manifest
        logger.info("published id=%s rev=%s digest=%s where=%s", manifest.id, manifest.rev, manifest.digest, done.where)
    return published


def publish_command(
    layout: Path,
    target: Target,
    *,
    auth: Credentials | None = None,
    ca_file: Path | None = None,
    mounts_from: str | None = None,
) -> tuple[Published, ...]:
    """`publish` for callers without an event loop."""
    return anyio.run(partial(publish, layout, target, auth=auth, ca_file=ca_file, mounts_from=mounts_from))
