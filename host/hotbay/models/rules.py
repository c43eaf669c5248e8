"""Which model a request is really for, and its priority. Pure; the numbers that targets are drawn by are an argument.

A rule that names the model beats one that takes any; of two that do, that of the older resource counts, and of one
resource's the first. A target is drawn by weight; without any weight, or if all are 0, each alike; among targets with
weights one without is never drawn.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

__all__ = ["NO_RULES", "ModelRules", "Objective", "Rewrite", "Rule", "Target", "make_rules"]


@dataclass(frozen=True, slots=True)
class Target:
    """A model to ask in place of another; `weight` None: not given."""

    model: str
    weight: int | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """Models that are rewritten, by their exact names; empty: any."""

    models: tuple[str, ...]
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """An InferenceModelRewrite. `created_s` is when, in seconds since the epoch; infinite where it does not say."""

    name: str
    created_s: float
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Objective:
    """An InferenceObjective; higher goes first."""

    name: str
    priority: int


@dataclass(frozen=True, slots=True)
class _Draw:
    """Targets with the running sums of their shares."""

    models: tuple[str, ...]
    sums: tuple[int, ...]

    def draw(self, number: float) -> str:
        """The target that a number in [0, 1) falls on."""
        if len(self.models) == 1:
            return self.models[0]
        return self.models[min(bisect_right(self.sums, number * self.sums[-1]), len(self.models) - 1)]


@dataclass(frozen=True, slots=True)
class ModelRules:
    """All of them, ready to be asked."""

    objectives: Mapping[str, Objective] = field(default_factory=dict)
    _by_model: Mapping[str, _Draw] = field(default_factory=dict)
    _any: _Draw | None = None

    @property
    def has_rewrites(self) -> bool:
        """Whether any model is rewritten."""
        return bool(self._by_model) or self._any is not None

    def target(self, model: str, draw: Callable[[], float]) -> str | None:
        """The model to ask for in place of this one; None when no rule says so. `draw` gives numbers in [0, 1)."""
        found = self._by_model.get(model) or self._any
        return None if found is None else found.draw(draw() if len(found.models) > 1 else 0.0)


NO_RULES: Final = ModelRules()


def make_rules(objectives: Iterable[Objective], rewrites: Sequence[Rewrite]) -> ModelRules:
    """Compile resources, given in the order of their files: of two of an age the first counts."""
    by_model: dict[str, _Draw] = {}
    anything: _Draw | None = None
    for rewrite in sorted(rewrites, key=lambda one: one.created_s):
        for rule in rewrite.rules:
            drawn = _draw_of(rule.targets)
            if not rule.models and anything is None:
                anything = drawn
            for model in rule.models:
                by_model.setdefault(model, drawn)
    return ModelRules({one.name: one for one in objectives}, by_model, anything)


def _draw_of(targets: Sequence[Target]) -> _Draw:
    weights = [target.weight or 0 for target in targets]
    shared = [(target.model, weight) for target, weight in zip(targets, weights, strict=True) if weight]
    if not shared:
        shared = [(target.model, 1) for target in targets]
    return _Draw(tuple(model for model, _ in shared), tuple(accumulate(weight for _, weight in shared)))
