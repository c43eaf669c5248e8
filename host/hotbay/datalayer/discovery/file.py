"""A discovery that reads a file of endpoints, and follows it.

A run's first look is strict: with any refused entry it fails and tells nothing. Afterwards nothing fails: a refused entry
keeps its last good form, a file that cannot be read or parsed, or is not there for now, keeps them all, and the problem is
told. Parsing is done in a thread: a large YAML document takes longer than a request may wait.
"""

from pathlib import Path

import anyio
import anyio.to_thread

from hotbay.config.documents import decode_text, load_document, refuse
from hotbay.config.file_content import FileContent
from hotbay.config.reload import read_content, watch_files
from hotbay.datalayer.discovery.endpoint_documents import EndpointFile, read_endpoints, with_last_good
from hotbay.datalayer.discovery.notifier import DiscoveryNotifier
from hotbay.errors import InputError, Place, Problem

__all__ = ["FileEndpoints"]


class FileEndpoints:
    """An `EndpointDiscovery` of a file. With `follow` changes of it are told until the run is cancelled."""

    def __init__(self, name: str, file: Path, *, follow: bool) -> None:
        self.name = name
        self.ready = anyio.Event()
        self._file = file
        self._follow = follow

    async def check(self) -> None:
        """Raises `InputError` when a run's first look would."""
        await self._first_look()

    async def run(self, notifier: DiscoveryNotifier) -> None:
        """Tell the file's endpoints and what becomes of them. Raises `InputError` when the first look is of no use."""
        content, read = await self._first_look()
        notifier.replace(read.endpoints, is_all=True)
        notifier.report((), read.warnings)
        self.ready.set()
        if not self._follow:
            await anyio.sleep_forever()

        async def changed(content: FileContent) -> None:
            try:
                read = await anyio.to_thread.run_sync(_read, content)
            except InputError as error:
                notifier.report(error.problems)
            else:
                notifier.replace(with_last_good(read, notifier.held))
                notifier.report(read.problems, read.warnings)

        await watch_files([self._file], changed, known={self._file: content.digest})

    async def _first_look(self) -> tuple[FileContent, EndpointFile]:
        content = await anyio.to_thread.run_sync(read_content, self._file)
        read = await anyio.to_thread.run_sync(_read, content)
        refuse(read.problems)
        return content, read


def _read(content: FileContent) -> EndpointFile:
    file = str(content.path)
    if content.data is None:
        hint = "bring it there, or correct `path`, which counts from the folder in which the configuration is named"
        message = f"the endpoint file cannot be read: {content.error}"
        problem = Problem("CONFIG_INVALID", message, Place(file), hint=hint)
        raise InputError([problem])
    return read_endpoints(load_document(decode_text(content.data, file=file), file=file))
