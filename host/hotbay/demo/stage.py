"""Sets the stage and clears it: a temporary folder, a model, three model servers, packages, a host.

The scorer that is replaced is the sample `least-loaded`, which exists as two projects of one plugin id. Both were packed
by `hotbay pack` in the set-up, like anybody's packages, and lie ready beside the bundled ones: in a checkout's build folder,
or in the wheel. Publishing is therefore what an author does, a package folder appearing in a watched directory, and the
swap is one to other code (version 2.0.0 reads a column that 1.0.0 does not), another digest and another process. Nothing
is built, fetched or re-labelled during the run. Packing at run time was decided against: it needs a build backend and
an index, and takes longer than the demo's first half.

The folder is removed when the stage is left, however that happens.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread

from hotbay.demo.configuration import PICKER, host_config
from hotbay.demo.host import HostProcess
from hotbay.demo.llama import LlamaServer, LlamaSpec
from hotbay.demo.model import SHAPES, write_model
from hotbay.demo.parts import REQUIREMENTS, load_part
from hotbay.errors import InputError, Problem
from hotbay.packages.bundled import Part, bundled_folder

__all__ = ["SWAPPED", "Stage", "set_stage"]

SERVERS_COUNT: Final = 3
SWAPPED: Final = "least-loaded"
"""The plugin of which a new version is published."""

_SHAPE: Final = SHAPES["light"]
_NICE: Final = 10
"""Model servers have machines of their own elsewhere; here they let the host's processes go first."""

_SLOTS: Final = 8
_SLOT_CONTEXT: Final = 2560
"""The longest prompt of a trace, its answer, and the template's words around them."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A host with plugins in front of model servers, and the next version of one plugin."""

    folder: Path
    host: HostProcess
    servers: tuple[LlamaServer, ...]

    async def publish(self) -> None:
        """Put the scorer's new version where the host looks for packages."""
        await anyio.to_thread.run_sync(_publish, sample("v2"), self.folder / "packages", "v2")


@asynccontextmanager
async def set_stage(say: Callable[[str], None], *, seed: int) -> AsyncIterator[Stage]:
    """Set everything up; `say` hears what is being done.

    Raises:
        InputError: something that the demo needs is not installed or not built.
        CapacityError: a server or the host did not become ready.
    """
    for part in REQUIREMENTS:
        load_part(part)
    _check_packages()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hotbay-demo-")))
        say("writing a random model of the llama architecture")
        model = folder / "model.gguf"
        await anyio.to_thread.run_sync(lambda: write_model(model, _SHAPE, seed=seed))
        say(f"starting {SERVERS_COUNT} llama.cpp servers")
        servers = [_start_server(model, folder / f"llama-{number}.log", stack) for number in range(SERVERS_COUNT)]
        for server in servers:
            await server.wait_ready()
        say("starting the host and its plugins")
        _publish(sample("v1"), folder / "packages", "v1")
        host = _start_host(folder, [server.url for server in servers], stack)
        await host.wait_ready()
        yield Stage(folder, host, tuple(servers))


def sample(version: str) -> Path:
    """The packed sample scorer, `v1` or `v2`: beside the packages that come with the host."""
    return bundled_folder(Part.SAMPLES) / SWAPPED / version


def _check_packages() -> None:
    missing = [path for path in (bundled_folder(Part.PACKAGES), sample("v1"), sample("v2")) if not path.is_dir()]
    if missing:
        hint = "In a checkout run `make setup`; elsewhere install the wheel that `make wheel` makes."
        raise InputError([Problem("CONFIG_INVALID", f"{path} is missing", hint=hint) for path in missing])


def _start_server(model: Path, log: Path, stack: AsyncExitStack) -> LlamaServer:
    server = LlamaServer.start(LlamaSpec(model, log, slots=_SLOTS, slot_context=_SLOT_CONTEXT, nice=_NICE))
    stack.push_async_callback(server.stop)
    return server


def _start_host(folder: Path, urls: list[str], stack: AsyncExitStack) -> HostProcess:
    (folder / "picker.yaml").write_text(PICKER)
    config = folder / "host.yaml"
    config.write_text(host_config(urls))
    host = HostProcess.start(config, folder / "host.log", home=folder, parent=os.getpid())
    stack.push_async_callback(host.stop)
    return host


def _publish(package: Path, directory: Path, name: str) -> None:
    """Copy beside, then rename: a watcher that looked between the two would find half a package."""
    directory.mkdir(exist_ok=True)
    aside = directory / f".{name}.part"
    shutil.copytree(package, aside)
    aside.rename(directory / name)
