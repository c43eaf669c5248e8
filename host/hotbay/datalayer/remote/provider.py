"""Makes the sources, extractors and discoveries that packages provide, before any of their processes runs.

What a type is, its process says when it is READY. Until then an extractor is what its source brings: a process that declares
something else fails each call, and counts as failing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from hotbay_sdk.protocol import TypeDeclaration

from hotbay.config.data_types import ENDPOINT_PAYLOAD, POLLED_PAYLOADS, ObjectKind, Point, TypeForm
from hotbay.config.data_uses import ExtractorUse, SourceUse
from hotbay.datalayer.discovery.feed import FeedPlan
from hotbay.datalayer.discovery.places import Own
from hotbay.datalayer.discovery.plans import DISCOVERY_SLOT
from hotbay.datalayer.remote.calls import CallOutcomes, Generations, RefCalls
from hotbay.datalayer.remote.discovery import RemoteDiscovery
from hotbay.datalayer.remote.extractors import (
    RemoteEndpointSource,
    RemoteEventExtractor,
    RemoteExtractor,
    RemoteSource,
)
from hotbay.datalayer.remote.payloads import PAYLOAD_TYPES
from hotbay.datalayer.remote.polling import RemotePollingSource
from hotbay.datalayer.remote.watching import RemoteWatchSource
from hotbay.datalayer.remote.wire_events import form_of, object_kind_of
from hotbay.datalayer.source import AnyExtractor, DataSource, NotificationSource
from hotbay.datalayer.sources.registrar import MissingPolicy, PendingRegistration
from hotbay.rpc.leases import LiveRef

__all__ = ["RemoteTypes"]


class RemoteTypes:
    """A `TypeProvider`, and where its calls go once the host's plugins are there: `bind` once.

    It is `Generations` and `CallOutcomes` itself: with nothing live and nobody to tell before. `listed` are the plugin
    refs, name → type, that the configuration has and the data layer does not name.

    Args:
        default_source: makes the source of a type as it is without parameters; None for a type that cannot do without.
        feed: finds the objects of a kind for sources of packages; None where this host has none.
        own: whether an address and a port are the host's own, which no discovery of a package may name.
    """

    def __init__(
        self,
        *,
        default_source: Callable[[str], DataSource | None] = lambda _type: None,
        feed: Callable[[ObjectKind], NotificationSource] | None = None,
        own: Own = lambda _address, _port: False,
    ) -> None:
        self.listed: Mapping[str, str] = {}
        self._default_source = default_source
        self._feed = feed
        self._own = own
        self._wishes: dict[tuple[str, str], PendingRegistration] = {}
        self._generations: Generations | None = None
        self._outcomes: CallOutcomes | None = None
        self._watchers: list[Callable[[], None]] = []

    def bind(self, generations: Generations, outcomes: CallOutcomes) -> None:
        """Answer from now on by what is live."""
        self._generations, self._outcomes = generations, outcomes
        generations.watch(self._tell)
        self._tell()

    def current(self, ref: str) -> LiveRef | None:
        return self._generations.current(ref) if self._generations is not None else None

    def declared(self, ref: str) -> TypeDeclaration | None:
        return self._generations.declared(ref) if self._generations is not None else None

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def called(
        self, generation: int, point: str, ref: str, *, duration_s: float, code: str = "", complaint: str = ""
    ) -> None:
        if self._outcomes is not None:
            self._outcomes.called(generation, point, ref, duration_s=duration_s, code=code, complaint=complaint)

    def _tell(self) -> None:
        for changed in tuple(self._watchers):
            changed()

    # -- what is made ----------------------------------------------------------------------------

    def source(self, use: SourceUse) -> DataSource | None:
        """The source of a package's type; None while nobody has said what the type is."""
        form = self._form_of(use)
        payload = _payload_in(form)
        if form is None or payload is None:
            return None
        kind = object_kind_of(payload)
        if Point.POLL in form.points:
            polled = payload in POLLED_PAYLOADS
            calls = RefCalls(use.name, "poll", self, self, payload=payload)
            return RemotePollingSource(use.type, payload, calls) if polled else None
        if Point.WATCH in form.points:
            return RemoteWatchSource(use.type, kind, use.name, self, self) if kind is not None else None
        if payload in POLLED_PAYLOADS:
            return None
        calls = RefCalls(use.name, "source", self, self, payload=payload)
        if payload == ENDPOINT_PAYLOAD:
            return RemoteEndpointSource(use.type, calls)
        feed = self._feed(kind) if self._feed is not None and kind is not None else None
        return RemoteSource(use.type, payload, calls, feed)

    def extractor(self, use: ExtractorUse, source: SourceUse) -> AnyExtractor | None:
        """The extractor of a package's type: it reads what the source brings."""
        payload = _payload_in(self._form_of(source))
        if payload is None:
            return None
        calls = RefCalls(use.name, "extract", self, self, payload=payload)
        if payload in POLLED_PAYLOADS:
            return RemoteExtractor(use.type, payload, calls)
        return RemoteEventExtractor(use.type, payload, calls)

    def forms(self, uses: Sequence[SourceUse]) -> Mapping[str, TypeForm]:
        """What the types of packages among the uses are, as far as their processes have said it. Wakes those of sources."""
        found: dict[str, TypeForm] = {}
        for use in uses:
            if use.form is None:
                # Nothing else calls a source that is not bound yet: one that sleeps would sleep for ever.
                self.current(use.name)
            named: list[SourceUse | ExtractorUse] = [use, *use.extractors]
            for one in named:
                declared = self.declared(one.name) if one.form is None else None
                if declared is not None:
                    found[one.type] = form_of(declared)
        return found

    def wishes(self) -> Sequence[PendingRegistration]:
        """What extractors depend on that are listed and not named: on the source that their types say."""
        wanted: dict[tuple[str, str], PendingRegistration] = {}
        for ref, type_name in self.listed.items():
            declared = self.declared(ref)
            if declared is None or "extract" not in declared.points or not declared.data.default_source:
                continue
            if declared.data.payload in POLLED_PAYLOADS:
                known = self._wishes.get((ref, type_name))
                if known is None or not _asks_for(known, declared):
                    known = self._wish(ref, declared)
                source_type = declared.data.default_source
                listed = next((name for name, one in self.listed.items() if one == source_type), "")
                wanted[ref, type_name] = replace(known, listed=listed)
        self._wishes = wanted
        return tuple(wanted.values())

    def _wish(self, ref: str, declared: TypeDeclaration) -> PendingRegistration:
        payload, source_type = declared.data.payload, declared.data.default_source
        calls = RefCalls(ref, "extract", self, self, payload=payload)
        extractor = RemoteExtractor(declared.type, payload, calls)
        default = self._default_source(source_type)
        # Plugins come and go while a host serves: one whose source there is not is no reason to refuse anything.
        return PendingRegistration(ref, source_type, extractor, default, MissingPolicy.WARN)

    def discovery_plan(self, ref: str) -> FeedPlan:
        """What is to be run for the plugin ref of a package's discovery."""
        name = f"discovery {ref!r}"
        ask = partial(RemoteDiscovery, ref, self, self, own=self._own)
        return FeedPlan(DISCOVERY_SLOT, name, ("plugin", ref), ask, is_package=True)

    def _form_of(self, source: SourceUse) -> TypeForm | None:
        if source.form is not None:
            return source.form
        live = self.current(source.name)
        return form_of(live.declaration) if live is not None else None


def _asks_for(wish: PendingRegistration, declared: TypeDeclaration) -> bool:
    """Whether this is what the type asks for now: another version may read something else, or of another source."""
    payload = PAYLOAD_TYPES[declared.data.payload]
    return wish.source_type == declared.data.default_source and getattr(wish.extractor, "payload", None) is payload


def _payload_in(form: TypeForm | None) -> str | None:
    return form.payloads[0] if form is not None and len(form.payloads) == 1 else None
