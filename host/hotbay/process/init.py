"""The first process of a container: starts the host as its child, hands signals on to it, and reaps every orphan.

A process with id 1 becomes the parent of whatever is orphaned in its namespace. The host itself could not wait for
"any child": it would take the exit statuses of its own plugins and tools from those who wait for them. So id 1 does
nothing else, and the host is an ordinary process below it. Anywhere but at id 1 this module does nothing.
"""

import os
import signal
from collections.abc import Collection
from contextlib import suppress
from typing import Final

__all__ = ["leave_process_1"]

_HANDED_ON: Final = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
_SI_KERNEL: Final = 0x80
"""`si_code` of a signal that a terminal sends, to the whole foreground group: the host has it already."""
_KILLED: Final = 128
"""What shells add to the number of a signal to make an exit code of it."""


def leave_process_1() -> None:
    """Return in a process that is not number 1; number 1 itself stays behind, and exits with the host's status.

    To be called before this process has a second thread. When number 1 ends the kernel kills all that is left.
    """
    if os.getpid() != 1:
        return
    awaited = {*_HANDED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_SETMASK, awaited)
    host = os.fork()
    if host == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    os._exit(_attend(host, awaited))


def _attend(host: int, awaited: Collection[int]) -> int:
    """Until the host ended; its exit code, or 128 and its signal."""
    while True:
        found = signal.sigwaitinfo(awaited)
        if found.si_signo == signal.SIGCHLD:
            code = _reap(host)
            if code is not None:
                return code
        elif found.si_code != _SI_KERNEL:
            with suppress(ProcessLookupError):
                os.kill(host, found.si_signo)


def _reap(host: int) -> int | None:
    """Wait for all that ended: signals that come together are one. The host's exit code if it is among them."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return None
        if ended is None:
            return None
        if ended.si_pid == host:
            return ended.si_status if ended.si_code == os.CLD_EXITED else _KILLED + ended.si_status
