"""Whose fault an error is: this alone decides between a quarantine, a count and a pause."""

import pytest
from hotbay.errors import CapacityError, HostError, InputError, PackageError, PluginFault, Problem
from hotbay.rollout.faults import MAX_SHOWN_CHARS, cause_of, failure_of
from hotbay.rollout.state import Cause, Phase


@pytest.mark.parametrize(
    ("error", "phase", "killed_by", "cause"),
    [
        (CapacityError("RESOURCE_EXHAUSTED", ""), Phase.STAGING, None, Cause.CAPACITY),
        (PackageError("FETCH_FAILED", ""), Phase.FETCHING, None, Cause.CAPACITY),
        (PackageError("LENGTH_MISMATCH", ""), Phase.FETCHING, None, Cause.CAPACITY),
        # Wrong bytes on the way are the source's; wrong bytes of what was complete are the package's.
        (PackageError("DIGEST_MISMATCH", ""), Phase.FETCHING, None, Cause.CAPACITY),
        (PackageError("DIGEST_MISMATCH", ""), Phase.STAGING, None, Cause.PACKAGE),
        (PackageError("INVALID_PACKAGE", ""), Phase.FETCHING, None, Cause.PACKAGE),
        (PackageError("INVALID_PACKAGE", ""), Phase.LAUNCHING, None, Cause.PACKAGE),
        (InputError([Problem("START_FAILED", "no such interpreter")]), Phase.STAGING, None, Cause.CAPACITY),
        (PluginFault("PROTOCOL_VERSION", ""), Phase.LAUNCHING, None, Cause.PACKAGE),
        (PluginFault("CRASHED", ""), Phase.IDLE, None, Cause.PLUGIN),
        (PluginFault("CRASHED", ""), Phase.IDLE, 9, Cause.OUTSIDE),
        (PluginFault("CRASHED", ""), Phase.IDLE, 6, Cause.PLUGIN),
        (PluginFault("READY_TIMEOUT", ""), Phase.LAUNCHING, None, Cause.PLUGIN),
    ],
)
def test_cause(error: HostError, phase: Phase, killed_by: int | None, cause: Cause) -> None:
    assert cause_of(error, phase, killed_by=killed_by) is cause


@pytest.mark.parametrize(
    ("length", "kept"), [(MAX_SHOWN_CHARS, MAX_SHOWN_CHARS), (MAX_SHOWN_CHARS + 1, MAX_SHOWN_CHARS)]
)
def test_words_of_plugins_are_cut(length: int, kept: int) -> None:
    failure = failure_of(PluginFault("START_FAILED", "x" * length, hint="y" * length), Phase.LAUNCHING, chance=0.25)
    assert (len(failure.message), len(failure.hint), failure.chance) == (kept, kept, 0.25)
