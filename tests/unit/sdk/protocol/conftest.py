"""Two real ends of a link, joined in memory."""

from collections.abc import Callable

import pytest
from hotbay_sdk.protocol import Connection, Role
from hypothesis import settings

# A wall-clock limit per example measures the machine's other work, not this code.
settings.register_profile("no deadline", parent=settings(), deadline=None)
settings.load_profile("no deadline")

Pair = tuple[Connection, Connection]


@pytest.fixture
def connect() -> Callable[..., Pair]:
    """A fresh (host, plugin) pair; `max_outstanding` bounds both ends."""

    def make(*, max_outstanding: int = 1024) -> Pair:
        host = Connection(Role.HOST, max_outstanding=max_outstanding)
        return host, Connection(Role.PLUGIN, max_outstanding=max_outstanding)

    return make
