"""One run of a plugin that tells what exists, at one process: its records as they come, and the lease that keeps its process.

Decides nothing: who is heard is `runs`' to say. Invariants: the lease is given back once; a run whose call cannot be made
holds none; what was told is read when it is asked for, so that a run that is not heard costs what came and no more.
"""

from collections.abc import Callable, Iterator
from typing import Generic, Protocol

from hotbay_sdk.protocol import Method

from hotbay.datalayer.remote.records import ItemT, RecordOf
from hotbay.datalayer.remote.succession import Run
from hotbay.errors import HostError
from hotbay.rpc.allowance import Allowance
from hotbay.rpc.client import PluginClient
from hotbay.rpc.leases import LiveRef

__all__ = ["Reader", "RunStream"]


class Reader(Protocol[ItemT]):
    """Reads the records of one run out of its data. `cost` is what the last one counts, from 1."""

    @property
    def cost(self) -> int: ...

    def feed(self, data: bytes) -> Iterator[RecordOf[ItemT]]:
        """The records that `data` completes, in order. Raises `PluginFault` where they are none."""


class RunStream(Generic[ItemT]):
    """See the module.

    Args:
        live: where it runs.
        method: what is called.
        run: whose word its records are.
        reader: of its records, and of no others.
        allowance: how much it may tell.
        news: called when something came or it ended, or its process is told to go.

    Raises:
        HostError: the process cannot be asked.
    """

    def __init__(
        self,
        live: LiveRef,
        method: Method,
        run: Run[ItemT],
        reader: Reader[ItemT],
        allowance: Allowance,
        news: Callable[[], None],
    ) -> None:
        self.live = live
        self.run = run
        self.allowance = allowance
        self.due_s = float("inf")
        """When it counts as failing because it has not told everything."""
        self.ended: HostError | None = None
        self.is_over = False
        self._records: Iterator[RecordOf[ItemT]] = iter(())
        self._reader = reader
        self._news = news
        self._is_leased = True
        live.generation.acquire()
        client: PluginClient = live.generation.client
        try:
            self._flow = client.follow(method, [list(live.handle)], came=news, done=self._on_end)
        except HostError:
            self.release()
            raise
        self._unsubscribe = live.generation.on_leaving(news)

    def _on_end(self, outcome: object) -> None:
        self.is_over = True
        self.ended = outcome if isinstance(outcome, HostError) else None
        self._news()

    def next_record(self) -> RecordOf[ItemT] | None:
        """The next record that has come, read now. Raises `PluginFault` for what is none."""
        record = next(self._records, None)
        if record is None:
            self._records = self._reader.feed(self._flow.take())
            record = next(self._records, None)
        if record is not None:
            self.allowance.owe(self._reader.cost - 1)
        return record

    def release(self) -> None:
        """Let the process go; what it still tells is heard."""
        if self._is_leased:
            self._is_leased = False
            self.live.generation.release()

    def close(self) -> None:
        """Hear it no more. It is over when its process gave it up."""
        self._unsubscribe()
        self._flow.cancel()
        self.release()
