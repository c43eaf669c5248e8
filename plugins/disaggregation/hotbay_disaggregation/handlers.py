"""The profile handlers: they run the stages of `stages`, ask deciders, and set headers before a request is sent."""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from hotbay_sdk import Context, Edits, Endpoints, PickedTargets, PreRequest, ProfileHandler, Request, StateDumper

from hotbay_disaggregation.addresses import READ, addresses_of, row_at, row_of
from hotbay_disaggregation.deciders import Decider, decider_named
from hotbay_disaggregation.header_setters import STAGE_HEADERS, stage_headers
from hotbay_disaggregation.package import plugin
from hotbay_disaggregation.parameters import (
    ENCODE,
    PREFILL,
    Deciders,
    DisaggParameters,
    PdParameters,
    Profiles,
    StageOrder,
    Stages,
)
from hotbay_disaggregation.stages import DECISIONS, Results, decision_of, merged, next_profile

RANK_HEADER: Final = "x-data-parallel-host-port"
_MAX_PENDING: Final = 8192
"""Requests between their processing and their sending: far more than a host has at once."""
_NO_ENCODE: Final = "\0"
"""A name that no profile can have."""


class _StagedHandler(ProfileHandler):
    """Runs stages and asks deciders."""

    _stages: Stages
    _deciders: Mapping[str, Decider]

    def pick(self, request: Request, profiles: Sequence[str], results: Results, endpoints: Endpoints) -> Sequence[str]:
        """The next stage's profile, alone, or none."""

        def asked(stage: str, decoding: str | None) -> bool:
            decider = self._deciders.get(stage)
            return decider is not None and decider.disaggregate(request, endpoints, row_of(endpoints, decoding))

        chosen = next_profile(self._stages, profiles, results, asked)
        return [] if chosen is None else [chosen]

    def _columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for decider in self._deciders.values() for name in decider.columns))


@plugin.type(
    "disagg-profile-handler",
    reads=["request.tokens_estimate", READ],
    consumes=["*"],
    parameters=DisaggParameters,
)
class DisaggProfileHandler(_StagedHandler, PreRequest, StateDumper):
    """Decode, and perhaps prefill and encode, each in a profile of its own."""

    def __init__(self, context: Context, parameters: DisaggParameters) -> None:
        self._stages = parameters.stages
        named = self._stages.deciders
        self._deciders = {
            stage: decider_named(context, name, parameters.path_of(stage))
            for stage, name in ((PREFILL, named.prefill), (ENCODE, named.encode))
            if name
        }
        self.optional = self._columns()
        self.sets_request_headers = STAGE_HEADERS
        self._decisions: Counter[str] = Counter(dict.fromkeys(DECISIONS, 0))
        if parameters.flat:
            context.logger.warning("%s: use profiles and deciders instead of the flat form", ", ".join(parameters.flat))

    def process(
        self, request: Request, results: Results, endpoints: Endpoints
    ) -> tuple[str, Mapping[str, Sequence[str] | None]] | None:
        """The stages that found endpoints; decode is the primary one. None where decoding found none."""
        found = merged(self._stages, results)
        if found is None:
            return None
        self._decisions[decision_of(self._stages, found)] += 1
        return self._stages.profiles.decode, found

    def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> Edits:
        """Both stage headers."""
        return stage_headers(picked, endpoints, self._stages.profiles.prefill, self._stages.profiles.encode)

    def dump_state(self) -> object:
        """How many requests got which stages."""
        return {"stage_order": str(self._stages.order), "decisions": dict(self._decisions)}


@plugin.type(
    "pd-profile-handler",
    reads=["request.id", "request.tokens_estimate", READ],
    consumes=["*"],
    parameters=PdParameters,
)
class PdProfileHandler(_StagedHandler, PreRequest):
    """Decode, then perhaps prefill. Deprecated: disagg-profile-handler does it, and sets the stage headers, too."""

    def __init__(self, context: Context, parameters: PdParameters) -> None:
        profiles = Profiles(parameters.decodeProfile, parameters.prefillProfile, _NO_ENCODE)
        self._stages = Stages(StageOrder.DECODE_FIRST, profiles, Deciders(parameters.deciderPluginName))
        self._deciders = {PREFILL: decider_named(context, parameters.deciderPluginName, "deciderPluginName")}
        self.optional = self._columns()
        self._primary_port = parameters.primaryPort
        self.sets_request_headers = (RANK_HEADER,) if parameters.primaryPort else ()
        self._ranks: OrderedDict[str, str] = OrderedDict()
        context.logger.warning("pd-profile-handler is deprecated: use disagg-profile-handler")

    def process(
        self, request: Request, results: Results, endpoints: Endpoints
    ) -> tuple[str, Mapping[str, Sequence[str] | None]] | None:
        """Decode and prefill; with a primary port, requests go to it and a header names the rank that was picked.

        None where decoding found no endpoint.
        """
        decode = self._stages.profiles.decode
        found = merged(self._stages, results)
        if found is None:
            return None
        if self._primary_port:
            ranks = addresses_of(endpoints, found[decode][:1])
            if ranks:
                self._ranks[request.id] = ranks[0]
                while len(self._ranks) > _MAX_PENDING:
                    self._ranks.popitem(last=False)
            found[decode] = list(dict.fromkeys(self._at_primary_port(endpoints, target) for target in found[decode]))
        return decode, found

    def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> Edits | None:
        """The rank's header, where there is a primary port."""
        if not self._primary_port:
            return None
        return Edits(request={RANK_HEADER: self._ranks.pop(request.id, None)})

    def _at_primary_port(self, endpoints: Endpoints, target: str) -> str:
        """The endpoint at the primary port of the same host; the target itself where there is none."""
        for address in addresses_of(endpoints, [target]):
            row = row_at(endpoints, f"{address.rpartition(':')[0]}:{self._primary_port}")
            if row is not None:
                return endpoints.ids[row]
        return target
