"""Runs uv and pip: found beside the host, bounded in time and output, killed with all that they started.

For a while they give way to the processes that serve.
"""

import logging
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import uv
from anyio.abc import Process

from hotbay.errors import CapacityError
from hotbay.priority import GivingWay

logger = logging.getLogger(__name__)

# An error's cause is at the end; a build's log may be long.
_OUTPUT_LIMIT_BYTES: Final = 64 << 10
_SHOWN_LINES: Final = 12
_ERROR: Final = re.compile(r"\W*(?:[A-Za-z.]*Error|error)\b.*:")

__all__ = ["ToolResult", "run_tool", "uv_binary"]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Exit status, and the end of standard output and error together."""

    code: int
    output: str

    @property
    def last_lines(self) -> str:
        """What to show to a person."""
        return "\n".join(self.output.strip().splitlines()[-_SHOWN_LINES:])

    @property
    def excerpt(self) -> str:
        """The last lines, after the first one that tells of an error when it is not among them: it names the cause."""
        lines = self.output.strip().splitlines()
        first = next((line for line in lines[:-_SHOWN_LINES] if _ERROR.match(line)), None)
        return self.last_lines if first is None else f"{first}\n…\n{self.last_lines}"


def uv_binary() -> str:
    """Path of the uv that the host depends on, whatever PATH says."""
    return uv.find_uv_bin()


async def run_tool(
    command: Sequence[str], *, timeout_s: float, variables: Mapping[str, str] | None = None
) -> ToolResult:
    """Runs a tool without input. Raises CapacityError RESOURCE_EXHAUSTED when it takes too long.

    `variables` are added to the inherited environment by env(1), so that this process's environment is never read here.
    """
    argv = [*(("/usr/bin/env", *(f"{k}={v}" for k, v in variables.items())) if variables else ()), *command]
    logger.debug("tool_started command=%s", argv)
    # A process whose start is interrupted half-way belongs to nobody, so the start is not.
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(
            argv, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True
        )
    giving_way = GivingWay(process.pid)
    try:
        with anyio.fail_after(timeout_s):
            output = await _output(process)
    except TimeoutError as error:
        raise CapacityError(
            "RESOURCE_EXHAUSTED",
            f"{Path(command[0]).name} did not end within {timeout_s:g} s",
            hint="The machine or its network is slow; it is safe to try again.",
            details={"command": list(argv)},
        ) from error
    finally:
        giving_way.forget()
    assert process.returncode is not None, "it was waited for"
    return ToolResult(process.returncode, output.decode(errors="replace"))


async def _output(process: Process) -> bytes:
    assert process.stdout is not None, "it was opened with a pipe"
    kept = bytearray()
    async with process:
        try:
            async for chunk in process.stdout:
                kept += chunk
                del kept[:-_OUTPUT_LIMIT_BYTES]
            await process.wait()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return bytes(kept)
