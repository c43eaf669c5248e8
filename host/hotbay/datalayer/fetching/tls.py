"""How sources and discoveries prove a server and show themselves: contexts made of files, and made anew when those change.

What counts is the files' content, once two looks in a row have seen it, so that no file is taken half-written; a certificate
and its key may be renewed one after the other. Files that cannot be used leave the last good context in force, and say so.
The system's authorities, which hold where no file is named, are read whenever a context is made, and are not followed.
A look has a thread to itself, so that a disk that hangs keeps nobody: who looks waits for so long, and a process that ends
for none. Invariant: one look of a context is under way at most, however long it takes.
"""

import asyncio
import hashlib
import logging
import os
import ssl
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import anyio

from hotbay.config.data_parameters import Tls
from hotbay.errors import InputError, Place, Problem

__all__ = ["LOOK_S", "ClientTls", "absolute", "client_context"]

logger = logging.getLogger(__name__)

LOOK_S: Final = 5.0
"""From one look at the files to the next: certificates are renewed by the day, and reading them is cheap."""


_SETTLE_S: Final = 0.1
"""Between the two looks that have to see the same: files are written in bursts of some ms."""
_Looked: TypeAlias = tuple[tuple[str, ...], ssl.SSLContext | InputError]
"""Digests of files that changed, and what was made of them."""

_KEPT: Final = "what the files held before stays in force: correct the file"


class ClientTls:
    """The context of a `Tls` as its files are. Blocks on the disk when it is made; one event loop uses it afterwards.

    `context` is replaced and never changed: a connection that was made with another one is of an earlier form of the files.
    `problems` say why the files as they are do not count.

    Args:
        tls: what is written.
        directory: what relative paths are relative to.
        sleep: waits for the second look, in the thread that looks.

    Raises:
        InputError: a file cannot be read, or is not what it should be.
    """

    def __init__(self, tls: Tls, directory: Path, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.problems: tuple[Problem, ...] = ()
        self._tls = tls
        self._directory = directory
        self._sleep = sleep
        written = (tls.ca_cert_path, tls.client_cert_path, tls.client_key_path)
        self._files = tuple(directory / path for path in written if path)
        self._is_looking = False
        self._due_s = float("-inf") if self._files else float("inf")
        # Before they are used: what is saved in between is a change.
        self._seen = self._digests()
        self.context = client_context(tls, directory)

    async def look_if_due(self, now: float, most_s: float = LOOK_S) -> None:
        """`look` if nobody has for LOOK_S, `now` being monotonic seconds. Calls may overlap: one of them looks."""
        if now >= self._due_s:
            self._due_s = now + LOOK_S
            await self.look(most_s)

    async def look(self, most_s: float = LOOK_S) -> None:
        """Look at the files now, and take them over if they changed: before this returns, or later if it takes longer.

        Returns at once while an earlier look is under way. Calls may overlap.

        Args:
            most_s: seconds that this waits.
        """
        if self._is_looking:
            return
        loop, ended = asyncio.get_running_loop(), anyio.Event()
        try:
            threading.Thread(target=self._look, args=(loop, ended), name="tls files", daemon=True).start()
        except RuntimeError as error:
            # The process may have no thread more; there is another look soon.
            logger.warning("tls_files_not_looked_at last_good=kept: %s", error)
            return
        self._is_looking = True
        with anyio.move_on_after(most_s):
            await ended.wait()

    def _look(self, loop: asyncio.AbstractEventLoop, ended: anyio.Event) -> None:
        looked = None
        try:
            looked = self._changed()
        finally:
            # Whatever it raised is the thread's to report.
            try:
                loop.call_soon_threadsafe(partial(self._end, looked, ended))
            except RuntimeError:
                logger.debug("tls_files_looked_at_in_vain: the loop is closed")

    def _changed(self) -> _Looked | None:
        digests = self._digests()
        if digests == self._seen:
            return None
        self._sleep(_SETTLE_S)
        made = self._make()
        # Else somebody is writing: whatever was made is of the next look.
        return (digests, made) if digests == self._digests() else None

    def _end(self, looked: _Looked | None, ended: anyio.Event) -> None:
        """On the loop."""
        self._is_looking = False
        if looked is not None:
            self._take(*looked)
        ended.set()

    def _take(self, digests: tuple[str, ...], made: ssl.SSLContext | InputError) -> None:
        self._seen = digests
        if isinstance(made, ssl.SSLContext):
            self.context, self.problems = made, ()
            logger.info("tls_files_taken files=%s", ",".join(map(str, self._files)))
            return
        self.problems = tuple(replace(problem, hint=_KEPT) for problem in made.problems)
        for problem in self.problems:
            logger.error("tls_files_refused last_good=kept: %s", problem)

    def _make(self) -> ssl.SSLContext | InputError:
        try:
            return client_context(self._tls, self._directory)
        except InputError as error:
            return error

    def _digests(self) -> tuple[str, ...]:
        return tuple(map(_digest, self._files))


def _digest(file: Path) -> str:
    """Identity of a file's whole content; of one that cannot be read, of the reason."""
    try:
        # Pipes and devices are not waited for.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as content:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return "unreadable: not a regular file"
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        return f"unreadable: {error.strerror or error}"


def client_context(tls: Tls, directory: Path) -> ssl.SSLContext:
    """A context for connections to endpoints; relative paths are relative to `directory`. Blocks on the disk.

    Raises:
        InputError: a file cannot be read, or is not what it should be.
    """
    # TLS 1.2 is the least that it allows.
    context = ssl.create_default_context()
    if tls.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca_cert_path:
        authorities = directory / tls.ca_cert_path
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cafile=authorities)
        except (OSError, ssl.SSLError) as error:
            raise _unusable(authorities, "certificates of authorities", error) from error
    if tls.client_cert_path:
        certificate, key = directory / tls.client_cert_path, directory / tls.client_key_path
        try:
            # Without the empty password an encrypted key would be asked for on the terminal.
            context.load_cert_chain(certificate, key, password="")
        except (OSError, ssl.SSLError) as error:
            missing = next((path for path in (certificate, key) if not path.is_file()), certificate)
            raise _unusable(missing, "a client's certificate with its key, not encrypted", error) from error
    return context


def absolute(tls: Tls, directory: Path) -> Tls:
    """The same with absolute paths, for a process that makes the context again."""
    paths = (tls.ca_cert_path, tls.client_cert_path, tls.client_key_path)
    ca, certificate, key = (str((directory / path).absolute()) if path else "" for path in paths)
    return Tls(tls.insecure_skip_verify, ca, certificate, key)


def _unusable(path: Path, expected: str, error: OSError) -> InputError:
    reason = error.strerror or str(error)
    problem = Problem("CONFIG_INVALID", f"cannot be used: {reason}", Place(str(path)), expected=f"{expected}, as PEM")
    return InputError([problem])
