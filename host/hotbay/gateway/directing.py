"""What the operator's rules and the client's headers make of a request before it is decided: its model and its priority.

The header `x-llm-d-model-name-rewrite` names the model to ask for; without it the rules say. A rewritten name replaces the
one in the body, and nothing else of it; a body in which it does not stand goes on as it is, under its own name. The header
`x-llm-d-inference-objective` names what its priority is; without it, or with a name that nobody knows, that is 0. The headers'
older names, with `x-gateway-`, are understood.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from hotbay.gateway.parsers.model_field import replace_model
from hotbay.models.rules import NO_RULES, ModelRules
from hotbay.observe.metrics import Metrics
from hotbay.scheduling.request import InferenceRequest

__all__ = ["Director", "no_rules"]

_REWRITE: Final = ("x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite")
_OBJECTIVE: Final = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
_MAX_MODEL_CHARS: Final = 1024


def no_rules() -> ModelRules:
    """No model is rewritten, no objective known."""
    return NO_RULES


class Director:
    """See the module. `rules` are asked for each request, `random` draws among targets."""

    def __init__(self, rules: Callable[[], ModelRules], random: Random, metrics: Metrics) -> None:
        self._rules = rules
        self._random = random
        self._metrics = metrics

    def direct(self, request: InferenceRequest) -> None:
        """Give the request its model and priority; called once, before it is decided."""
        rules, headers = self._rules(), request.headers
        objective = _given(headers, _OBJECTIVE)
        if objective:
            known = rules.objectives.get(objective)
            if known is None:
                self._metrics.unknown_objective(objective)
            else:
                request.priority = known.priority
        if not request.model:
            return
        target: str | None = _given(headers, _REWRITE)
        if not target or len(target) > _MAX_MODEL_CHARS or not target.isprintable():
            target = rules.target(request.model, self._random.random) if rules.has_rewrites else None
        if target is not None and target != request.model:
            self._rewrite(request, target)

    def _rewrite(self, request: InferenceRequest, target: str) -> None:
        body = replace_model(request.body, target)
        if body is None:
            self._metrics.model_rewrite(request.model, target, "impossible")
            return
        request.body, request.target_model = body, target
        self._metrics.model_rewrite(request.model, target, "applied")


def _given(headers: Mapping[str, str], names: tuple[str, str]) -> str:
    return headers.get(names[0]) or headers.get(names[1]) or ""
