"""Which learners are told besides those of a plan: the same refs in other generations, kept warm. Pure."""

from collections.abc import Mapping, Sequence

from hotbay.rpc.leases import Generation
from hotbay.scheduling.fields import NO_FACTS, instance_reads, response_headers_of, wire_columns, wire_fields
from hotbay.scheduling.plan import Learner

__all__ = ["Mirrors"]


class Mirrors:
    """Generations by the number of the one whose learners they copy. Made anew for each publication."""

    __slots__ = ("_by_number", "_made")

    def __init__(self, by_number: Mapping[int, Sequence[Generation]]) -> None:
        self._by_number = by_number
        self._made: dict[Learner, tuple[Learner, ...]] = {}

    def of(self, learner: Learner) -> tuple[Learner, ...]:
        """The same ref in the mirroring generations, as far as its type learns there."""
        if not self._by_number:
            return ()
        made = self._made.get(learner)
        if made is None:
            others = self._by_number.get(learner.generation.number, ())
            made = self._made[learner] = tuple(twin for other in others if (twin := _twin(learner, other)) is not None)
        return made


def _twin(learner: Learner, generation: Generation) -> Learner | None:
    binding = learner.binding
    declared, handle = generation.types.get(binding.type), generation.handles.get(binding.ref)
    if declared is None or handle is None or str(binding.point) not in declared.points:
        return None
    reads = instance_reads(declared, generation.facts.get(binding.ref, NO_FACTS))
    return Learner(
        binding,
        generation,
        (generation.number, handle),
        wire_fields(reads, generation.block_tokens.get(binding.ref)),
        wire_columns(reads),
        headers=response_headers_of(reads),
        every_chunk=declared.every_chunk,
    )
