"""The call that asks an instance which headers to set, once it is known where a request goes. Pure."""

from collections.abc import Sequence
from functools import partial

from hotbay_sdk.protocol import Method, Value
from hotbay_sdk.protocol.calls import InstanceFacts
from hotbay_sdk.protocol.verdicts import HeaderEdits, read_edits

from hotbay.rpc.leases import Generation
from hotbay.scheduling.batch import AnswerValue, Consumed, CycleState, Tally, request_columns
from hotbay.scheduling.binding import Binding, Point
from hotbay.scheduling.calls import RemoteCall
from hotbay.scheduling.handler_calls import results_map
from hotbay.scheduling.request_calls import each_answer

__all__ = ["EditsCall"]


class EditsCall(RemoteCall):
    """One instance that sets headers, of those that it says it sets. `order`: of several that set one header the last counts."""

    __slots__ = ("_read", "_withheld", "order")

    def __init__(
        self,
        generation: Generation,
        binding: Binding,
        *,
        columns: Sequence[str],
        fields: Sequence[str],
        consumed: Sequence[Consumed],
        facts: InstanceFacts,
        order: int,
    ) -> None:
        super().__init__(generation, Method.PRE_REQUEST, [binding], columns=columns, fields=fields, consumed=consumed)
        self.order = order
        self._read = partial(
            read_edits, request=frozenset(facts.request_headers), response=frozenset(facts.response_headers)
        )
        self._withheld = HeaderEdits(dict.fromkeys(facts.request_headers), {})

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `pre_request`."""
        requests = request_columns(cycles, self.fields, self.consumed)
        return [self.handles[0], view, requests, [_pick(cycle) for cycle in cycles]], None

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Note the edits of each request."""
        return each_answer(self, cycles, result, tally, self._read, self._take)

    def fail(self, cycle: CycleState, reason: str, tally: Tally) -> None:
        """Take the headers away that the client may have sent as if they were this instance's."""
        super().fail(cycle, reason, tally)
        # Ahead of all that was answered: who else sets one of them is heard.
        cycle.edits[-1 - self.order] = self._withheld

    def _take(self, cycle: CycleState, edits: HeaderEdits | None) -> None:
        if edits is not None:
            cycle.edits[self.order] = edits

    def read(self, cycles: Sequence[CycleState], result: Value, index: int) -> dict[tuple[Point, str], AnswerValue]:
        """Nothing: header values are whatever a plugin keeps of a session, and two generations keep their own."""
        return {}


def _pick(cycle: CycleState) -> list[object]:
    assert cycle.target is not None, "headers are set of a request that goes somewhere"
    name, rows = cycle.target
    ids = cycle.snapshot.ids
    return [[ids[row] for row in rows], name, results_map(cycle)]
