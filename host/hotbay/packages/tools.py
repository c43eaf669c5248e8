"""Runs uv and pip: found beside the host, bounded in time, killed with the scope, their last words kept."""

import logging
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import uv

from hotbay.errors import CapacityError

logger = logging.getLogger(__name__)

__all__ = ["ToolResult", "run_tool", "uv_binary"]


class ToolResult:
    """Exit status and joined output of a tool."""

    __slots__ = ("code", "output")

    def __init__(self, code: int, output: str) -> None:
        self.code = code
        self.output = output

    @property
    def last_lines(self) -> str:
        """What to show to a person."""
        return "\n".join(self.output.strip().splitlines()[-12:])


def uv_binary() -> str:
    """Path of the uv that the host depends on, whatever PATH says."""
    return uv.find_uv_bin()


async def run_tool(
    command: Sequence[str], *, timeout_s: float, variables: Mapping[str, str] | None = None, directory: Path | None = None
) -> ToolResult:
    """Runs a tool without input. Raises CapacityError RESOURCE_EXHAUSTED when it takes too long.

    `variables` are added to the inherited environment by env(1), so that this process's environment is never read here.
    """
    argv = [*(("/usr/bin/env", *(f"{k}={v}" for k, v in variables.items())) if variables else ()), *command]
    logger.debug("tool_started command=%s", argv)
    try:
        with anyio.fail_after(timeout_s):
            done = await anyio.run_process(
                argv, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False, cwd=directory
            )
    except TimeoutError as error:
        raise CapacityError(
            "RESOURCE_EXHAUSTED",
            f"{Path(command[0]).name} did not end within {timeout_s:g} s",
            hint="The machine or its network is slow; it is safe to try again.",
            details={"command": list(argv)},
        ) from error
    return ToolResult(done.returncode, done.stdout.decode(errors="replace"))
