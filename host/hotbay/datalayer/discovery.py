"""Keeps the store's endpoints as the operator wrote them: in the host's configuration, and in a file that is followed.

The first load is strict: any refused entry raises, and nothing of it is applied. Afterwards nothing raises: a refused
entry keeps its last good form, a file that cannot be read or parsed keeps them all, and `problems` says why. All
changes come from one task, upserts before deletes.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from hotbay.config.documents import decode_text, load_document
from hotbay.config.file_content import FileContent
from hotbay.config.reload import read_content, watch_files
from hotbay.datalayer.endpoint import Delete, EndpointMetadata
from hotbay.datalayer.endpoint_documents import EndpointFile, merge_sources, read_endpoints, with_last_good
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import InputError, Place, Problem

__all__ = ["Discovery"]

logger = logging.getLogger(__name__)

_CONFIGURATION: Final = "the host configuration"


class Discovery:
    """Fills a store from configured endpoints and at most one endpoint file.

    `ready` is set after the first successful load, zero endpoints included, and stays set. `problems` is what is
    wrong with the file as it is now, `warnings` what was decided although it could be read in two ways.
    """

    def __init__(
        self, store: EndpointStore, *, configured: Sequence[EndpointMetadata] = (), file: Path | None = None
    ) -> None:
        self.ready = anyio.Event()
        self.problems: tuple[Problem, ...] = ()
        self.warnings: tuple[Problem, ...] = ()
        self._store = store
        self._configured = tuple(configured)
        self._file = file
        self._digest = ""
        self._from_file: tuple[EndpointMetadata, ...] = ()

    async def load(self) -> None:
        """Load for the first time and set `ready`.

        Raises:
            InputError: the file cannot be used; the store is as it was.
        """
        if self._file is not None:
            content = await anyio.to_thread.run_sync(read_content, self._file)
            read = _read(content)
            if read.problems:
                raise InputError(read.problems)
            self._digest = content.digest
            self._take(read)
        self._apply()
        self.ready.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow the file until cancelled; call after `load`, whose content is not read again."""
        if self._file is None:
            task_status.started()
            await anyio.sleep_forever()
            return
        await watch_files([self._file], self._file_changed, known={self._file: self._digest}, task_status=task_status)

    def configure(self, configured: Sequence[EndpointMetadata]) -> None:
        """Take over another list from the host's configuration."""
        self._configured = tuple(configured)
        self._apply()

    async def _file_changed(self, content: FileContent) -> None:
        try:
            read = _read(content)
        except InputError as error:
            self.problems = error.problems
        else:
            self._take(read)
            self._apply()
        for problem in self.problems:
            logger.error("endpoint_file_problem last_good=kept: %s", problem)

    def _take(self, read: EndpointFile) -> None:
        self.problems = read.problems
        self.warnings = read.warnings
        self._from_file = with_last_good(read, {endpoint.id: endpoint for endpoint in self._from_file})

    def _apply(self) -> None:
        sources = [(_CONFIGURATION, self._configured), (str(self._file), self._from_file)]
        merged, conflicts = merge_sources(sources)
        for warning in (*self.warnings, *conflicts):
            logger.warning("endpoint_ambiguous: %s", warning)
        events = self._store.reconcile(merged)
        deleted = sum(isinstance(event, Delete) for event in events)
        if events:
            logger.info(
                "endpoints_changed upserted=%d deleted=%d total=%d", len(events) - deleted, deleted, len(self._store)
            )


def _read(content: FileContent) -> EndpointFile:
    file = str(content.path)
    if content.data is None:
        problem = Problem("CONFIG_INVALID", f"the endpoint file cannot be read: {content.error}", Place(file))
        raise InputError([problem])
    return read_endpoints(load_document(decode_text(content.data, file=file), file=file))
