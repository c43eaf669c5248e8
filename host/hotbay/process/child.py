"""One OS process of a plugin: started, watched by its pidfd, and killed with all that it started.

Invariants:
- started from the main thread, because a parent-death signal fires when the thread that forked ends;
- death is what the pidfd says, never the end of a pipe: a grandchild can hold every pipe;
- the process group is killed while its leader is not yet reaped, so that no number is reused in between;
- nobody else reaps this process;
- it is recorded before it runs any of the plugin's code, and as long as something of it may run;
- the descriptors here are the host's ends, non-blocking and not inherited by anything.
"""

import asyncio
import errno
import fcntl
import logging
import os
import resource
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from hotbay_sdk.protocol import ErrorCode

from hotbay.errors import CapacityError, HostError, PluginFault
from hotbay.priority import GIVES_WAY_S, GivingWay
from hotbay.process.isolation import find_level
from hotbay.process.launch import ChannelDescriptors, LaunchSpec, command, environment
from hotbay.process.leftovers import CHANNEL_VARIABLE, record_process
from hotbay.process.links import ChildEnds, HostEnds, open_links
from hotbay.process.log import LogSink, LogStream
from hotbay.process.pump import Pump

logger = logging.getLogger(__name__)

TAIL_CHARS: Final = 4 * 1024
KILL_TIMEOUT_S: Final = 5.0
"""How long a process may take to go after SIGKILL; longer means that the kernel holds it."""

_OUT_OF: Final = {
    errno.EAGAIN: "processes",
    errno.ENOMEM: "memory",
    errno.EMFILE: "descriptors of the host",
    errno.ENFILE: "descriptors of the machine",
}


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: by `code` or by `signal`, one of them. `stderr_tail` is the end of its log."""

    code: int | None
    signal: int | None
    stderr_tail: str

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit code {self.code}"
        try:
            return f"signal {self.signal} ({signal.Signals(self.signal).name})"
        except ValueError:
            return f"signal {self.signal}"


class Child:
    """One running or ended plugin process. Used from the event loop's thread only.

    `call_in_fd`: the host reads replies; `call_out_fd`: the host writes calls; `control`: the socket.
    They stay open after the process ended, so that what it wrote last can be read; `close` closes them.
    `call_out_bytes` and `call_in_bytes` are the capacities that the kernel gave to the two pipes. `argv` is the command
    line that was run.
    """

    def __init__(
        self,
        spec: LaunchSpec,
        log: LogSink,
        process: "subprocess.Popen[bytes]",
        *,
        ends: HostEnds,
        pidfd: int,
        argv: Sequence[str],
        record: Path | None,
    ) -> None:
        self.label = spec.label
        self.argv = tuple(argv)
        self.log = log
        self.pid = process.pid
        self.control = ends.control
        self.call_in_fd = ends.call_in
        self.call_out_fd = ends.call_out
        self.call_in_bytes = fcntl.fcntl(ends.call_in, fcntl.F_GETPIPE_SZ)
        self.call_out_bytes = fcntl.fcntl(ends.call_out, fcntl.F_GETPIPE_SZ)
        self._process = process
        self._record = record
        self._grace_s = spec.grace_s
        self._pidfd = pidfd
        self._exit: Exit | None = None
        self._exited = anyio.Event()
        self._terminated = False
        self._giving_way: GivingWay | None = None
        self._pumps = [
            Pump(fd, LogStream(log, name, self.pid)) for name, fd in (("stdout", ends.stdout), ("stderr", ends.stderr))
        ]
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._on_exit)

    @classmethod
    def start(cls, spec: LaunchSpec, log: LogSink) -> "Child":
        """Start the process and return at once; needs the running event loop, in the main thread.

        Raises `PluginFault` START_FAILED or REFUSED_ISOLATION, and `CapacityError` RESOURCE_EXHAUSTED when
        the machine has no process, memory or descriptor to give. On error nothing is left behind.
        """
        assert threading.current_thread() is threading.main_thread(), "plugins are started from the main thread"
        argv = find_level(spec.level).wrap(command(spec), spec)
        with ExitStack() as on_error, ExitStack() as child_side:
            try:
                ends, child_ends = open_links(on_error, child_side)
                process = _spawn(spec, argv, child_ends)
                on_error.callback(_abandon, process)
                # Nobody reaps it before this object does, so the number is still this process's.
                pidfd = os.pidfd_open(process.pid)
                on_error.callback(os.close, pidfd)
            except OSError as error:
                raise _start_error(spec, error) from error
            # A crash must not write the memory of a plugin, which may hold prompts, to disk.
            with suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))
            record = _record(spec, process.pid, ends, child_ends.channel)
            child = cls(spec, log, process, ends=ends, pidfd=pidfd, argv=argv, record=record)
            on_error.pop_all()
        logger.info("process_started pid=%s", child.pid, extra={"plugin": spec.label, "pid": child.pid})
        return child

    @property
    def exit(self) -> Exit | None:
        """How it ended, or None while it runs."""
        return self._exit

    def exit_details(self) -> dict[str, object]:
        """What an error tells of a process that is gone or going: argv, exit, signal, stderr (the end of its log)."""
        found = self._exit
        return {
            "argv": list(self.argv),
            "exit": found.code if found else None,
            "signal": found.signal if found else None,
            "stderr": found.stderr_tail if found else self.log.tail(TAIL_CHARS),
        }

    async def wait(self) -> Exit:
        """Return how the process ended; several may wait."""
        await self._exited.wait()
        assert self._exit is not None
        return self._exit

    def signal(self, signum: int) -> None:
        """Send a signal to the plugin's own process; does nothing once it ended."""
        if self._exit is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signum)

    def give_way(self, at_most_s: float = GIVES_WAY_S) -> None:
        """Leave the CPU to processes that serve, until `take_part` or for so long."""
        if self._exit is None:
            self._giving_way = GivingWay(self.pid, at_most_s)

    def take_part(self) -> None:
        """Undo `give_way`. Idempotent."""
        if self._giving_way is not None:
            self._giving_way.end()

    def kill_group(self) -> None:
        """SIGKILL the process and its whole group; does nothing once it ended, the group died with it."""
        if self._exit is None:
            # EPERM: every member that is left has other credentials; the leader is still ours to kill.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self.signal(signal.SIGKILL)

    async def stop(self, grace_s: float | None = None) -> Exit | None:
        """SIGTERM, `grace_s` (default: the spec's), then SIGKILL to the group. Idempotent and shielded.

        Returns None if the kernel does not let the process go within `KILL_TIMEOUT_S` of SIGKILL.
        """
        with anyio.CancelScope(shield=True):
            if not self._terminated:
                self._terminated = True
                self.signal(signal.SIGTERM)
            with anyio.move_on_after(self._grace_s if grace_s is None else grace_s):
                return await self.wait()
            self.kill_group()
            with anyio.move_on_after(KILL_TIMEOUT_S):
                return await self.wait()
        logger.error(
            "process_not_gone pid=%s: it is there %s s after SIGKILL", self.pid, KILL_TIMEOUT_S, extra=self._fields()
        )
        return None

    def close(self) -> None:
        """Close the host's ends of the links, whose readers and writers are gone from the loop. Idempotent.

        A process that still runs sees the end of its control socket and leaves.
        """
        if self.call_in_fd >= 0:
            self.control.close()
            os.close(self.call_in_fd)
            os.close(self.call_out_fd)
            self.call_in_fd = self.call_out_fd = -1

    def _on_exit(self) -> None:
        found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return
        self.kill_group()
        os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        if self._giving_way is not None:
            self._giving_way.forget()
            self._giving_way = None
        by_code = found.si_code == os.CLD_EXITED
        # Popen is told that its process was reaped: it would wait for that number again when it is collected.
        self._process.returncode = found.si_status if by_code else -found.si_status
        for pump in self._pumps:
            pump.close()
        self._forget()
        self._exit = Exit(
            code=found.si_status if by_code else None,
            signal=None if by_code else found.si_status,
            stderr_tail=self.log.tail(TAIL_CHARS),
        )
        self._exited.set()
        logger.info("process_ended pid=%s by=%s", self.pid, self._exit, extra=self._fields())

    def _forget(self) -> None:
        """Remove the record, unless a program that the process started may still be there: somebody has its output."""
        if self._record is not None and all(pump.ended for pump in self._pumps):
            with suppress(OSError):
                self._record.unlink()

    def _fields(self) -> dict[str, object]:
        return {"plugin": self.label, "pid": self.pid}


def _record(spec: LaunchSpec, pid: int, ends: HostEnds, channel: ChannelDescriptors) -> Path | None:
    if not spec.record_in:
        return None
    pipes = tuple(os.fstat(fd).st_ino for fd in (ends.stdout, ends.stderr))
    told = environment(spec, channel)[CHANNEL_VARIABLE]
    return record_process(Path(spec.record_in), label=spec.label, pid=pid, channel=told, pipes=pipes)


def _spawn(spec: LaunchSpec, argv: Sequence[str], ends: ChildEnds) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - no shell; the command line is the host's own
        argv,
        stdin=subprocess.DEVNULL,
        stdout=ends.stdout,
        stderr=ends.stderr,
        cwd=spec.working_directory,
        env=environment(spec, ends.channel),
        pass_fds=ends.channel,
        start_new_session=True,
    )


def _abandon(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def _start_error(spec: LaunchSpec, error: OSError) -> HostError:
    name = errno.errorcode.get(error.errno or 0, "unknown")
    details = {"plugin": spec.label, "errno": name, "interpreter": spec.interpreter}
    missing = _OUT_OF.get(error.errno or 0)
    if missing is not None:
        return CapacityError(
            ErrorCode.RESOURCE_EXHAUSTED,
            f"{spec.label} cannot start: out of {missing} ({error.strerror})",
            hint=f"raise the limit of {missing} (ulimit -a) or run fewer plugins",
            details=details,
        )
    if error.filename == spec.working_directory:
        what, hint = "working directory", "create the directory, or let the host's user enter it"
    else:
        what, hint = (
            "interpreter",
            "set hosts[].interpreter to a Python that exists and that the host's user may execute",
        )
    return PluginFault(
        ErrorCode.START_FAILED,
        f"{spec.label} cannot start: {what} {error.filename or spec.interpreter!r}: {error.strerror or error} ({name})",
        hint=hint,
        details=details,
    )
