"""Calls to a profile handler in a process: which profiles to run, and what to make of their results. Pure.

A name that is no profile is an error of the request, not a reason to go on without the handler: what it meant is unknown.
"""

from collections.abc import Sequence
from typing import Final

from hotbay_sdk.protocol import ErrorCode, Method, Value

from hotbay.rpc.leases import Generation
from hotbay.scheduling.batch import AnswerValue, BadResultError, Consumed, CycleState, Tally, request_columns
from hotbay.scheduling.binding import Binding, Point
from hotbay.scheduling.calls import RemoteCall
from hotbay.scheduling.decision import INELIGIBLE, Rejected, joined

__all__ = ["ProfilePickCall", "ProfileProcessCall", "results_map"]

MAX_NAMES: Final = 64
"""Of profiles in one answer."""
MAX_TARGETS: Final = 16
"""Of one profile's result: as many as a picker may name."""


class ProfilePickCall(RemoteCall):
    """Asks a profile handler which profiles to run next."""

    __slots__ = ("_profiles",)

    def __init__(
        self,
        generation: Generation,
        binding: Binding,
        *,
        columns: Sequence[str],
        fields: Sequence[str],
        consumed: Sequence[Consumed] = (),
        profiles: Sequence[str],
    ) -> None:
        super().__init__(generation, Method.PROFILE_PICK, [binding], columns=columns, fields=fields, consumed=consumed)
        self._profiles = tuple(profiles)

    def batch_limit(self, rows: int) -> int:
        """One: each request has results of its own."""
        return 1

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `profile_pick`."""
        requests = request_columns(cycles, self.fields, self.consumed)
        return [self.handles[0], view, requests, list(self._profiles), results_map(cycles[0])], None

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Store the names to run; a name that is no profile refuses the request."""
        if not isinstance(result, list) or len(result) > MAX_NAMES or not all(isinstance(name, str) for name in result):
            raise BadResultError(f"profile_pick: expected at most {MAX_NAMES} names")
        cycle = cycles[0]
        cycle.chosen = list(dict.fromkeys(str(name) for name in result))
        unknown = [name for name in cycle.chosen if name not in self._profiles]
        if unknown:
            ref = self.bindings[0].ref
            tally.plugin_error(Point.PROFILE_HANDLER, ref, str(ErrorCode.BAD_RESULT))
            known = ", ".join(self._profiles)
            message = f"UNKNOWN_PROFILE: profile handler '{ref}' asked for {ascii(unknown[0])[:80]}, there is {known}"
            cycle.reject(Rejected(500, "unknown-profile", message))
        return not unknown

    def read(self, cycles: Sequence[CycleState], result: Value, index: int) -> dict[tuple[Point, str], AnswerValue]:
        """Names of the profiles to run."""
        assert isinstance(result, list), "it was applied"
        return {(Point.PROFILE_HANDLER, self.bindings[0].ref): tuple(str(name) for name in result)}


class ProfileProcessCall(RemoteCall):
    """Asks a profile handler which profile's result is the primary one, and which results to go on with."""

    __slots__ = ()

    def __init__(
        self,
        generation: Generation,
        binding: Binding,
        *,
        columns: Sequence[str],
        fields: Sequence[str],
        consumed: Sequence[Consumed] = (),
    ) -> None:
        super().__init__(
            generation, Method.PROFILE_PROCESS, [binding], columns=columns, fields=fields, consumed=consumed
        )

    def batch_limit(self, rows: int) -> int:
        """One: each request has results of its own."""
        return 1

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `profile_process`."""
        requests = request_columns(cycles, self.fields, self.consumed)
        return [self.handles[0], view, requests, results_map(cycles[0])], None

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Store the primary profile, which must have a result, and the results that the request goes on with.

        With nil there are none: the request is refused, as the profiles say that found nothing. That is no fault.
        """
        if result is None:
            message = f"profile handler '{self.bindings[0].ref}' found no result to go on with"
            cycles[0].reject(joined(cycles[0].drained, message) or INELIGIBLE._replace(message=message))
            return True
        primary = result.get("primary") if isinstance(result, dict) else None
        raw = result.get("results") if isinstance(result, dict) else None
        results = _results(cycles[0], raw)
        if not isinstance(primary, str) or not results.get(primary):
            raise BadResultError("profile_process: expected {primary: a profile that has a result, results}, or nil")
        cycles[0].primary = primary
        cycles[0].results = results
        return True

    def read(self, cycles: Sequence[CycleState], result: Value, index: int) -> dict[tuple[Point, str], AnswerValue]:
        """The primary profile's name, nothing where there is none."""
        assert result is None or isinstance(result, dict), "it was applied"
        return {(Point.PROFILE_HANDLER, self.bindings[0].ref): () if result is None else (str(result["primary"]),)}


def results_map(cycle: CycleState) -> dict[str, list[str] | None]:
    """Results so far, rows named by endpoint id."""
    ids = cycle.snapshot.ids
    return {name: None if rows is None else [ids[row] for row in rows] for name, rows in cycle.results.items()}


def _results(cycle: CycleState, raw: Value) -> dict[str, list[int] | None]:
    """Results as a handler returned them: of profiles that ran, endpoints of the snapshot that may take requests."""
    if not isinstance(raw, dict):
        raise BadResultError("profile_process: expected results: {profile: [endpoint ids] or nil}")
    for name in raw:
        if name not in cycle.results:
            raise BadResultError(f"profile_process: profile {ascii(name)[:80]} did not run")
    return {name: None if ids is None else _rows(cycle, name, ids) for name, ids in raw.items()}


def _rows(cycle: CycleState, name: str, ids: Value) -> list[int]:
    if not isinstance(ids, list) or len(ids) > MAX_TARGETS:
        raise BadResultError(f"profile_process: expected at most {MAX_TARGETS} endpoint ids of profile '{name}'")
    snapshot, picked = cycle.snapshot, {row for rows in cycle.results.values() for row in rows or ()}
    rows: list[int] = []
    for endpoint_id in ids:
        row = snapshot.row_of.get(endpoint_id) if isinstance(endpoint_id, str) else None
        # One that is tried though it is not live is there only where the host picked it so.
        if row is None or not (snapshot.live[row] or row in picked):
            raise BadResultError(f"profile_process: {ascii(endpoint_id)[:80]} is no endpoint that may be picked")
        if row not in rows:
            rows.append(row)
    return rows
