"""Runs the rules against a command, one after the other."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

import anyio

from hotbay.conformance import (
    call_rules,
    cancel_rules,
    data_rules,
    frame_rules,
    request_rules,
    share_rules,
    start_rules,
    stop_rules,
    stream_rules,
    telling_rules,
)
from hotbay.conformance.link import Patience
from hotbay.conformance.stage import Rule, Stage
from hotbay.conformance.verdict import BrokenRuleError, InapplicableError, Result, Verdict
from hotbay.process.launch import LaunchSpec

RULES: Final[tuple[Rule, ...]] = (
    *start_rules.RULES,
    *frame_rules.RULES,
    *call_rules.RULES,
    *cancel_rules.RULES,
    *stream_rules.RULES,
    *request_rules.RULES,
    *data_rules.RULES,
    *telling_rules.RULES,
    *share_rules.RULES,
    *stop_rules.RULES,
)
RULE_LIMIT_S: Final = 120.0
"""No rule takes this long: each of its waits has a deadline, and there are some hundreds of them at most."""

__all__ = ["RULES", "run_suite"]


async def run_suite(
    spec: LaunchSpec,
    *,
    rules: Sequence[Rule] = RULES,
    patience: Patience | None = None,
    parameters: Mapping[str, Mapping[str, object]] | None = None,
) -> AsyncGenerator[Result, None]:
    """Yield a result for each rule, in order.

    `parameters` are those of the peer's types, by name, for types that cannot be made without. Needs the main thread.
    Raises `HostError` when the command cannot be started at all.
    """
    stage = Stage(spec, patience or Patience(), parameters or {})
    try:
        for rule in rules:
            yield await _run(rule, stage)
    finally:
        with anyio.CancelScope(shield=True):
            await stage.close()


async def _run(rule: Rule, stage: Stage) -> Result:
    result = Result(rule.id, rule.title, Verdict.KEPT)
    try:
        with anyio.fail_after(RULE_LIMIT_S):
            await rule.check(stage)
    except BrokenRuleError as error:
        result = Result(rule.id, rule.title, Verdict.BROKEN, str(error), stage.log)
    except InapplicableError as reason:
        result = Result(rule.id, rule.title, Verdict.SKIPPED, str(reason))
    except TimeoutError:
        result = Result(rule.id, rule.title, Verdict.BROKEN, f"not done after {RULE_LIMIT_S:g} s", stage.log)
    await stage.end_rule(broken=result.verdict is Verdict.BROKEN)
    return result
