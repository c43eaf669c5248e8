"""Asks a package what its types are, as a host would hear it: one process is started up to READY, and ends again."""

import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
from hotbay_sdk.protocol import TypeDeclaration

from hotbay.authoring.developing.debugging import PROBE
from hotbay.errors import HostError
from hotbay.packages.manifest import Manifest
from hotbay.process.launch import STAGE0, LaunchSpec
from hotbay.process.log import LogSink
from hotbay.rollout.instance import Instance, StartOptions
from hotbay.rpc.leases import Origin

__all__ = ["declared_types"]


async def declared_types(manifest: Manifest, site: Path) -> Mapping[str, TypeDeclaration]:
    """What the package in `site` declares, by type. What it prints is logged as a host logs it.

    Raises:
        HostError: it does not get READY.
    """
    spec = LaunchSpec(
        interpreter=sys.executable,
        stage0=STAGE0,
        environment=str(site),
        entrypoint=manifest.entrypoint,
        working_directory="/",
        level="none",
        label=f"{manifest.id}#0",
        extra_environment=((PROBE, "1"),),
    )
    instance = Instance.launch(spec, LogSink(spec.label, rev=manifest.rev), lambda _: None)
    found: list[Mapping[str, TypeDeclaration] | HostError] = []
    async with anyio.create_task_group() as group:
        group.start_soon(instance.watch)
        try:
            origin = Origin(manifest.id, manifest.version, manifest.rev, manifest.digest)
            found.append((await instance.handshake(origin, 0, manifest.types, StartOptions())).types)
        except HostError as error:
            # Raised below: a task group would wrap it.
            found.append(error)
        finally:
            with anyio.CancelScope(shield=True):
                await instance.kill()
    (types,) = found
    if isinstance(types, HostError):
        raise types
    return types
