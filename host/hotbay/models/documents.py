"""Reads `InferenceObjective` and `InferenceModelRewrite`, as the reference's API has them, from texts of many documents.

Pure and strict: unknown fields, wrong types and documents of other kinds are errors, all of them at once, each with file,
line and column. `poolRef` is checked for its form and means nothing here: a host is one pool. `status` and what a cluster
writes into `metadata` are passed over.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from hotbay.config.document_stream import split_documents
from hotbay.config.documents import load_document
from hotbay.config.forms import Form
from hotbay.config.wording import Path, Value
from hotbay.errors import InputError, Problem
from hotbay.models.rules import Objective, Rewrite, Rule, Target

__all__ = ["API_VERSIONS", "KINDS", "ModelDocuments", "read_models"]

API_VERSIONS: Final = ("llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2")
"""The second is the group's older name, which the reference still takes."""
KINDS: Final = ("InferenceObjective", "InferenceModelRewrite")
MAX_WEIGHT: Final = 1_000_000
_MAX_PRIORITY: Final = 2**31 - 1
_MAX_NAME: Final = 253


@dataclass(frozen=True, slots=True)
class ModelDocuments:
    """What one text says, in its order."""

    objectives: tuple[Objective, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()


def read_models(text: str, *, file: str) -> ModelDocuments:
    """Read a text. Raises `InputError` with every problem found."""
    objectives: list[Objective] = []
    rewrites: list[Rewrite] = []
    problems: list[Problem] = []
    seen: set[tuple[str, str]] = set()
    for part in split_documents(text):
        try:
            document = load_document(part, file=file)
        except InputError as error:
            problems += error.problems
            continue
        form = Form(document)
        found = _resource(form, document.value)
        if found is not None:
            key = (type(found).__name__, found.name)
            if key in seen:
                form.report(
                    ("metadata", "name"), "DUPLICATE_NAME", f"a second {_kind_of(found)} {found.name!r} in this file"
                )
            seen.add(key)
            if isinstance(found, Objective):
                objectives.append(found)
            else:
                rewrites.append(found)
        problems += form.problems
    if problems:
        raise InputError(problems)
    return ModelDocuments(tuple(objectives), tuple(rewrites))


def _kind_of(found: Objective | Rewrite) -> str:
    return KINDS[0] if isinstance(found, Objective) else KINDS[1]


def _resource(form: Form, value: Value) -> Objective | Rewrite | None:
    fields = form.fields(value, (), ("apiVersion", "kind", "metadata", "spec", "status"))
    if not fields:
        if isinstance(value, dict) and not form.problems:
            form.expected((), f"an object of kind {' or '.join(KINDS)}", value)
        return None
    _one_of(form, fields.get("apiVersion"), ("apiVersion",), API_VERSIONS)
    kind = _one_of(form, fields.get("kind"), ("kind",), KINDS)
    name, created_s = _metadata(form, fields.get("metadata"))
    spec = fields.get("spec")
    if kind is None or name is None:
        return None
    if kind == KINDS[0]:
        return Objective(name, _priority(form, spec if spec is not None else {}))
    return Rewrite(name, created_s, _rules(form, spec))


def _one_of(form: Form, value: Value, path: Path, known: Sequence[str]) -> str | None:
    if isinstance(value, str) and value in known:
        return value
    form.expected(path, " or ".join(known), value)
    return None


def _metadata(form: Form, value: Value) -> tuple[str | None, float]:
    if not isinstance(value, dict):
        form.expected(("metadata",), "a mapping with a name", value)
        return None, math.inf
    name = form.name(value.get("name"), ("metadata", "name"))
    return name, _created_s(form, value.get("creationTimestamp"))


def _created_s(form: Form, value: Value) -> float:
    if value is None:
        return math.inf
    path = ("metadata", "creationTimestamp")
    text = form.text(value, path)
    if text is None:
        return math.inf
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        form.expected(path, "a time such as 2026-01-31T12:00:00Z", value)
        return math.inf
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _priority(form: Form, spec: Value) -> int:
    fields = form.fields(spec, ("spec",), ("priority", "poolRef"))
    _check_pool(form, fields.get("poolRef"))
    found = _integer(form, fields.get("priority"), ("spec", "priority"), -_MAX_PRIORITY - 1, _MAX_PRIORITY)
    return found or 0


def _integer(form: Form, value: Value, path: Path, least: int, most: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    form.expected(path, f"a whole number from {least} to {most}", value)
    return None


def _check_pool(form: Form, value: Value) -> None:
    if value is None:
        return
    fields = form.fields(value, ("spec", "poolRef"), ("group", "kind", "name"))
    for field in ("group", "kind"):
        if field in fields:
            form.text(fields[field], ("spec", "poolRef", field))
    if isinstance(value, dict):
        form.name(fields.get("name"), ("spec", "poolRef", "name"))


def _rules(form: Form, spec: Value) -> tuple[Rule, ...]:
    fields = form.fields(spec, ("spec",), ("poolRef", "rules"))
    _check_pool(form, fields.get("poolRef"))
    found: list[Rule] = []
    for path, value in form.items(fields.get("rules"), ("spec", "rules")):
        rule = form.fields(value, path, ("matches", "targets"))
        models = _matches(form, rule, path)
        targets = _targets(form, rule, path)
        if models is not None and targets:
            found.append(Rule(models, targets))
    if isinstance(spec, dict) and not found and not form.problems:
        form.expected(("spec", "rules"), "a list of at least one rule", fields.get("rules"))
    return tuple(found)


def _matches(form: Form, rule: Mapping[str, Value], path: Path) -> tuple[str, ...] | None:
    """Names of models; empty: any model; None: not readable. One match without a model takes any."""
    models: list[str] = []
    takes_any = False
    for at, value in form.items(rule.get("matches"), (*path, "matches")):
        fields = form.fields(value, at, ("model",))
        if "model" not in fields:
            takes_any = takes_any or value == {}
            continue
        model = form.fields(fields["model"], (*at, "model"), ("type", "value"))
        if "type" in model:
            _one_of(form, model["type"], (*at, "model", "type"), ("Exact",))
        name = _model_name(form, model.get("value"), (*at, "model", "value"))
        if name is not None:
            models.append(name)
    return None if form.problems else () if takes_any else tuple(models)


def _targets(form: Form, rule: Mapping[str, Value], path: Path) -> tuple[Target, ...]:
    found: list[Target] = []
    for at, value in form.items(rule.get("targets"), (*path, "targets")):
        fields = form.fields(value, at, ("modelRewrite", "weight"))
        name = _model_name(form, fields.get("modelRewrite"), (*at, "modelRewrite"))
        weight = _integer(form, fields.get("weight"), (*at, "weight"), 0, MAX_WEIGHT)
        if name is not None:
            found.append(Target(name, weight))
    if not found and not form.problems:
        form.expected((*path, "targets"), "a list of at least one target", rule.get("targets"))
    return tuple(found)


def _model_name(form: Form, value: Value, path: Path) -> str | None:
    text = form.text(value, path)
    if text is None or (len(text) <= _MAX_NAME and text.isprintable()):
        return text
    form.expected(path, f"a printable name of at most {_MAX_NAME} characters", value)
    return None
