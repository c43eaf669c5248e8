"""Compiles what comes before the profiles of a plan, and after: stages, header edits, who is told, parsers. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from hotbay.errors import Problem
from hotbay.rpc.leases import Generation
from hotbay.scheduling.binding import Binding, Point, Policy
from hotbay.scheduling.calls import ProduceCall, RemoteCall
from hotbay.scheduling.compiling import Compiling
from hotbay.scheduling.edit_call import EditsCall
from hotbay.scheduling.fields import request_headers_of, response_headers_of
from hotbay.scheduling.plan import Before, Learner, Parser, RefPlan
from hotbay.scheduling.request_calls import AdmitCall, HeadersCall, SaturationCall, ScreenCall

__all__ = ["Phases", "Stages"]

Stages = tuple[tuple[Before, tuple[RemoteCall, ...]], ...]
EARLY = (Point.REQUEST_HEADERS, Point.SCREEN, Point.PRODUCE, Point.ADMIT)
"""Points of every request that come before its profiles; what is absent there is decided before anything is called."""


class Phases:
    """Everything of a plan but its profiles and its handler."""

    def __init__(self, context: Compiling) -> None:
        self._context = context

    def absent(self) -> list[Binding]:
        """Early uses of refs without a process; header edits where a request may not go without them."""
        context = self._context
        gone = [ref for ref in context.given.refs if ref.plugin_id is not None and ref.generation is None]
        found = [context.bind(ref, point) for point in EARLY for ref in gone if ref.has(point)]
        for ref in gone:
            if ref.has(Point.PRE_REQUEST):
                found += [use for use in [context.bind(ref, Point.PRE_REQUEST)] if use.policy is Policy.FAIL_CLOSED]
        return found

    def producers(self) -> tuple[tuple[RemoteCall, ...], ...]:
        """Producers in the order of their data."""
        layered = self._context.data.layers()
        if isinstance(layered, Problem):
            self._context.problems.append(layered)
            return ()
        called = [[(ref, ref.generation) for ref in layer if ref.generation is not None] for layer in layered]
        return tuple(tuple(self._produce(ref, generation) for ref, generation in layer) for layer in called if layer)

    def before(self, producers: Sequence[tuple[RemoteCall, ...]]) -> Stages:
        """The stages ahead of the profiles: those that the configuration uses, and no others."""
        return tuple(self._stages(producers))

    def _stages(self, producers: Sequence[tuple[RemoteCall, ...]]) -> Iterator[tuple[Before, tuple[RemoteCall, ...]]]:
        context = self._context
        for ref, generation in context.callable_refs(Point.REQUEST_HEADERS):
            needs = context.needs([ref])
            binding = context.bind(ref, Point.REQUEST_HEADERS)
            yield Before.HEADERS, (HeadersCall(generation, binding, fields=needs.fields),)
        detector = self._detector()
        if detector is not None:
            yield Before.SATURATION, (detector,)
            yield Before.SHED, ()
        screens = tuple(self._screen(ref, generation) for ref, generation in context.callable_refs(Point.SCREEN))
        if screens:
            yield Before.SCREEN, screens
            yield Before.SCREENED, ()
        for stage in producers:
            yield Before.PRODUCE, stage
        for ref, generation in context.callable_refs(Point.ADMIT):
            yield Before.ADMIT, (self._admit(ref, generation),)

    def _detector(self) -> SaturationCall | None:
        name = self._context.given.detector
        ref = self._context.refs.get(name) if name is not None else None
        if ref is None or ref.generation is None:
            return None
        if not ref.has(Point.SATURATION):
            self._context.problem(
                "CONFIG_INVALID",
                f"saturationDetector: '{ref.name}' of type '{ref.type}' is no saturation detector",
                ref.place,
                hint="name a plugin whose type answers `saturation`",
            )
            return None
        binding = self._context.bind(ref, Point.SATURATION)
        return SaturationCall(ref.generation, binding, columns=self._context.needs([ref]).columns)

    def _screen(self, ref: RefPlan, generation: Generation) -> ScreenCall:
        needs = self._context.needs([ref])
        binding = self._context.bind(ref, Point.SCREEN)
        return ScreenCall(generation, binding, columns=needs.columns, fields=needs.fields)

    def _produce(self, ref: RefPlan, generation: Generation) -> ProduceCall:
        needs = self._context.needs([ref])
        return ProduceCall(
            generation,
            self._context.bind(ref, Point.PRODUCE),
            columns=needs.columns,
            fields=needs.fields,
            consumed=needs.consumed,
            produces=ref.declaration.produces if ref.declaration is not None else (),
        )

    def _admit(self, ref: RefPlan, generation: Generation) -> AdmitCall:
        needs = self._context.needs([ref])
        return AdmitCall(
            generation,
            self._context.bind(ref, Point.ADMIT),
            columns=needs.columns,
            fields=needs.fields,
            consumed=needs.consumed,
        )

    # -- after the profiles ----------------------------------------------------------------------

    def edits(self) -> tuple[EditsCall, ...]:
        """Instances that say that they set headers, in the order of the configuration."""
        found: list[EditsCall] = []
        for ref, generation in self._context.callable_refs(Point.PRE_REQUEST):
            facts = self._context.facts(ref)
            if not facts.request_headers and not facts.response_headers:
                continue
            needs = self._context.needs([ref])
            call = EditsCall(
                generation,
                self._context.bind(ref, Point.PRE_REQUEST),
                columns=needs.columns,
                fields=needs.fields,
                consumed=needs.consumed,
                facts=facts,
                order=len(found),
            )
            found.append(call)
        return tuple(found)

    def learners(self, edits: Sequence[EditsCall]) -> tuple[tuple[Learner, ...], tuple[Learner, ...]]:
        """Whoever takes part in PRE_REQUEST: those that are told where requests go, and those that are asked before."""
        asked = {call.bindings[0].ref for call in edits}
        all_of = tuple(self._told(Point.PRE_REQUEST))
        learners = tuple(learner for learner in all_of if learner.binding.ref not in asked)
        return learners, tuple(learner for learner in all_of if learner.binding.ref in asked)

    def listeners(self) -> tuple[Learner, ...]:
        """Whoever is told of responses."""
        return (*self._told(Point.RESPONSE_HEADERS), *self._told(Point.RESPONSE_BODY))

    def _told(self, point: Point) -> Iterable[Learner]:
        for ref, generation in self._context.callable_refs(point):
            needs = self._context.needs([ref])
            yield Learner(
                self._context.bind(ref, point),
                generation,
                (generation.number, generation.handles[ref.name]),
                needs.fields,
                needs.columns,
                headers=response_headers_of(self._context.reads(ref)),
                every_chunk=ref.declaration is not None and ref.declaration.every_chunk,
            )

    def parsers(self) -> tuple[Parser, ...]:
        """Parsers of packages, in the order in which they claim paths."""
        names = self._context.given.parsers
        wanted = (
            self._context.given.refs
            if names is None
            else [self._context.refs[n] for n in names if n in self._context.refs]
        )
        found: list[Parser] = []
        for ref in wanted:
            if not ref.has(Point.PARSE):
                continue
            binding = self._context.bind(ref, Point.PARSE)
            headers = request_headers_of(self._context.reads(ref))
            generation = ref.generation
            handle = (0, 0) if generation is None else (generation.number, generation.handles[ref.name])
            claims = () if ref.declaration is None else ref.declaration.claims
            found.append(Parser(binding, claims, headers, generation, handle))
        return tuple(found)
