"""The `hotbay` command that tells, when it gets SIGUSR2, what only it can count: its tasks. For leak runs.

`python -m benchmarks.counted_host FILE ARGUMENT…`: FILE appears whole, and is replaced each time.
"""

import asyncio
import gc
import json
import signal
import sys
from pathlib import Path

from hotbay.cli import main as hotbay


def count_into(file: Path) -> None:
    """Write the count of tasks that are not done. Garbage is collected first: what is left is held."""
    gc.collect()
    tasks = sum(1 for found in gc.get_objects() if isinstance(found, asyncio.Task) and not found.done())
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"tasks": tasks}))
    new.replace(file)


def main() -> None:
    """Become the host."""
    file = Path(sys.argv.pop(1))
    signal.signal(signal.SIGUSR2, lambda *_: count_into(file))
    hotbay()


if __name__ == "__main__":
    main()
