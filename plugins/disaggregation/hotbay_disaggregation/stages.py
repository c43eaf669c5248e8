"""Which profile runs next, and what the results come to. Pure: deciders are asked through a function.

Decode first: decode, then encode and prefill where their deciders say so of the endpoint that was picked for decoding.
Prefill first: prefill whenever there is such a profile, then encode, then decode. A stage that ran and failed (None) is
not run again; decode alone must succeed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from hotbay_disaggregation.parameters import ENCODE, PREFILL, StageOrder, Stages

Results: TypeAlias = Mapping[str, Sequence[str] | None]
Asked: TypeAlias = Callable[[str, str | None], bool]
"""Whether a stage (`prefill`, `encode`) runs, given the endpoint that decodes, where one is known."""

DECISIONS: Final = ("decode-only", "prefill-decode", "encode-decode", "encode-prefill-decode")


class StageFailedError(RuntimeError):
    """No request can be served: there is no profile to decode in."""


def next_profile(stages: Stages, profiles: Sequence[str], results: Results, asked: Asked) -> str | None:
    """The profile to run next; None when all has run. Raises `StageFailedError`."""
    if stages.profiles.decode not in profiles:
        raise StageFailedError(
            f"there is no profile {stages.profiles.decode!r} to decode in; schedulingProfiles has {', '.join(profiles)}"
        )
    if stages.order is StageOrder.PREFILL_FIRST:
        return _prefill_first(stages, profiles, results, asked)
    return _decode_first(stages, profiles, results, asked)


def _decode_first(stages: Stages, profiles: Sequence[str], results: Results, asked: Asked) -> str | None:
    names = stages.profiles
    if names.decode not in results:
        return names.decode
    decoding = results[names.decode]
    if not decoding:
        return None
    for stage, name in ((ENCODE, names.encode), (PREFILL, names.prefill)):
        if name in profiles and name not in results and asked(stage, decoding[0]):
            return name
    return None


def _prefill_first(stages: Stages, profiles: Sequence[str], results: Results, asked: Asked) -> str | None:
    names = stages.profiles
    if names.decode in results:
        return None
    if names.prefill in profiles and names.prefill not in results:
        return names.prefill
    if names.encode in profiles and names.encode not in results and asked(ENCODE, None):
        return names.encode
    return names.decode


def merged(stages: Stages, results: Results) -> dict[str, Sequence[str]] | None:
    """Results of the stages that found endpoints, decode first; None where decoding found none."""
    names = stages.profiles
    if not results.get(names.decode):
        return None
    found: dict[str, Sequence[str]] = {}
    for name in (names.decode, names.prefill, names.encode):
        targets = results.get(name)
        if targets:
            found[name] = targets
    return found


def decision_of(stages: Stages, found: Mapping[str, object]) -> str:
    """One of `DECISIONS`: the stages that a request got."""
    encode, prefill = stages.profiles.encode in found, stages.profiles.prefill in found
    return DECISIONS[2 * encode + prefill]
