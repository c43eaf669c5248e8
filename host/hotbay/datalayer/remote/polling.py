"""A source in plugin processes that is polled, in the form of `hotbay.datalayer.source`: whichever version is live is asked.

What fails is lost: the next poll says more. Pages of metrics are read here, as those that the host fetches itself: by the
engine's mapping, and for the samples that the extractors behind it want.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from hotbay_sdk.protocol import Method, Value

from hotbay.config.engine_parameters import EngineParameters
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.endpoint_rows import wire_row
from hotbay.datalayer.pages.engines import NO_ENGINE, EngineSet
from hotbay.datalayer.pages.exposition import ExpositionError, Form
from hotbay.datalayer.pages.extraction import EndpointMemory, MetricsPage, MetricsReader
from hotbay.datalayer.pages.text import PageText
from hotbay.datalayer.remote.calls import POLL_STEP_S, RefCalls
from hotbay.datalayer.remote.payloads import PAYLOAD_TYPES, payload_limit, read_payload
from hotbay.datalayer.source import Extractor, NotAskedError, SourceError
from hotbay.datalayer.sources.core import CoreMetricsExtractor
from hotbay.errors import HostError, PluginFault
from hotbay.rpc.leases import LiveRef

__all__ = ["INTERVAL_S", "RemotePollingSource"]

INTERVAL_S: Final = 1.0
"""Of a type that says nothing: it may ask somebody far away."""
_OPENMETRICS_END: Final = b"# EOF"
_END_BYTES: Final = 16


class RemotePollingSource:
    """A `PollingSource`. Polls of different endpoints overlap, as many as `RefCalls` puts to a process.

    Args:
        type_name: the plugin type.
        payload: the declared word, of `PAYLOAD_TYPES`.
        calls: of the ref.
    """

    step_s = POLL_STEP_S

    def __init__(self, type_name: str, payload: str, calls: RefCalls) -> None:
        self.name = calls.ref
        self.type = type_name
        self.payload: type = PAYLOAD_TYPES[payload]
        self._word = payload
        self._calls = calls
        self._interval_s = INTERVAL_S
        self._pages = _Pages()

    @property
    def interval_s(self) -> float:
        """What the version that was READY last declares."""
        declared = self._calls.generations.declared(self.name)
        if declared is not None:
            self._interval_s = declared.data.interval_ms / 1000 or INTERVAL_S
        return self._interval_s

    def read_for(self, extractors: Sequence[Extractor]) -> None:
        """See `ReadsForExtractors`."""
        self._pages.extractors = tuple(extractors)

    async def poll(self, endpoint: EndpointMetadata) -> object:
        """Ask for one payload. Raises `SourceError`, after at most `step_s`.

        `NotAskedError` where it was not asked because too many others were.
        """
        row, limit = wire_row(endpoint), payload_limit(self._word)
        try:
            return await self._calls.ask(
                Method.SOURCE_POLL, lambda _: [row], partial(self._read, endpoint), limit=lambda _: limit
            )
        except NotAskedError:
            raise
        except HostError as error:
            raise SourceError(error.code.lower(), error.message) from error

    def forget(self, endpoint_id: str) -> None:
        self._pages.forget(endpoint_id)

    def _read(self, endpoint: EndpointMetadata, found: Value, _live: LiveRef) -> object:
        payload = read_payload(found, self._word)
        if self._word != "metrics":
            return payload
        assert isinstance(payload, bytes), "a page is read as bytes"
        try:
            return self._pages.read(payload, endpoint)
        except ExpositionError as error:
            raise PluginFault("BAD_RESULT", f"the payload is no metrics page: {error}") from error


class _Pages:
    """Reads pages for the extractors that there are: their core extractor says how, their families what."""

    def __init__(self) -> None:
        self.extractors: tuple[Extractor, ...] = ()
        self._read_for: tuple[EngineParameters, frozenset[str]] | None = None
        self._reader = MetricsReader(EngineSet(NO_ENGINE))
        self._memories: dict[str, EndpointMemory] = {}

    def read(self, body: bytes, endpoint: EndpointMetadata) -> MetricsPage:
        """Read a page. Raises `ExpositionError`."""
        wanted = self._wanted()
        if wanted != self._read_for:
            self._read_for, self._reader = wanted, MetricsReader(EngineSet(wanted[0]), wanted[1])
            self._memories.clear()
        memory = self._memories.setdefault(endpoint.id, EndpointMemory())
        form = Form.OPENMETRICS if body[-_END_BYTES:].rstrip().endswith(_OPENMETRICS_END) else Form.TEXT
        return self._reader.read(PageText.of(body), endpoint.labels, form, memory)

    def forget(self, endpoint_id: str) -> None:
        self._memories.pop(endpoint_id, None)

    def _wanted(self) -> tuple[EngineParameters, frozenset[str]]:
        """Families may change with each version of an extractor."""
        core = next((one for one in self.extractors if isinstance(one, CoreMetricsExtractor)), None)
        families = frozenset(family for one in self.extractors for family in getattr(one, "families", ()))
        return NO_ENGINE if core is None else core.parameters, families
