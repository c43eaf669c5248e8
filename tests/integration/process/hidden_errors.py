"""A plugin of pytest (`-p hidden_errors`): fails a test after which asyncio says that nobody looked at an error.

Python's warnings are failures by the configuration; asyncio says these things to its log alone.
"""

import gc
import logging
from collections.abc import Iterator

import pytest


class Errors(logging.Handler):
    """Keeps what asyncio says at level error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))


@pytest.fixture(autouse=True)
def nothing_hidden() -> Iterator[None]:
    """Around every test."""
    errors = Errors()
    logger = logging.getLogger("asyncio")
    logger.addHandler(errors)
    yield
    # Destructors say it, and those of a cycle wait for the collector.
    gc.collect()
    logger.removeHandler(errors)
    assert not errors.said
