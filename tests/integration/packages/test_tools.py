"""Tools end when they must, with everything that they started."""

import os
import sys
from pathlib import Path

import anyio
import pytest
from hotbay.errors import CapacityError
from hotbay.packages.tools import ToolResult, run_tool

pytestmark = [pytest.mark.anyio, pytest.mark.process]


async def test_output_and_status_are_kept() -> None:
    program = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
    result = await run_tool([sys.executable, "-c", program], timeout_s=20)
    assert (result.code, result.last_lines) == (3, "out\nerr")


def test_excerpt_leads_with_the_first_error_when_the_end_does_not_show_it() -> None:
    short = "\n".join(["building", "error: no such option", "error: again", "bye"])
    assert ToolResult(1, short).excerpt == short

    long = "\n".join([short, *(f"line {number}" for number in range(12))])
    first, gap, *rest = ToolResult(1, long).excerpt.splitlines()
    assert (first, gap, rest) == ("error: no such option", "…", [f"line {number}" for number in range(12)])

    python = "\n".join(["Traceback:", "  ValueError: bad", *(["x"] * 12)])
    assert ToolResult(1, python).excerpt.startswith("  ValueError: bad\n…\n")


async def test_only_the_end_of_long_output_is_kept() -> None:
    result = await run_tool([sys.executable, "-c", "print('x' * 10**6); print('end')"], timeout_s=20)
    assert len(result.output) == 64 << 10
    assert result.output.endswith("xxx\nend\n")


async def test_variables_are_added_to_the_environment() -> None:
    program = "import os; print(os.environ['ADDED'], 'PATH' in os.environ)"
    result = await run_tool([sys.executable, "-c", program], timeout_s=20, variables={"ADDED": "a b"})
    assert result.output == "a b True\n"


async def test_time_limit_kills_what_the_tool_started(tmp_path: Path) -> None:
    """The grandchild holds the other end of a named pipe: reading it ends when the grandchild does."""
    os.mkfifo(tmp_path / "alive")
    program = f"exec 9>{tmp_path / 'alive'}; sleep 1000 & wait"
    failures: list[CapacityError] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.Path(tmp_path / "alive").read_bytes)
        try:
            await run_tool(["/bin/sh", "-c", program], timeout_s=0.5)
        except CapacityError as error:
            failures.append(error)
    assert "sh did not end within 0.5 s" in failures[0].message
