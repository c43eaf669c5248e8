"""Label selectors of Kubernetes: their form, what they refuse, and which labels they match. Pure.

As `LabelSelector` of its API (meta/v1) and the rules of its labels have it: a key is a name of at most 63 characters,
perhaps behind a DNS subdomain and a slash; a value is empty or such a name. An empty selector matches everything. All
defects are `ParameterError` with the field's path.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from hotbay_sdk import ParameterError

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]

MAX_NAME_CHARS: Final = 63
MAX_PREFIX_CHARS: Final = 253
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_NAME_FORM: Final = f"at most {MAX_NAME_CHARS} letters, digits and - _ . that begin and end with a letter or digit"


def check_key(key: str, path: str) -> None:
    """Raises ParameterError for what cannot be a label's key."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (0 < len(prefix) <= MAX_PREFIX_CHARS and _PREFIX.fullmatch(prefix)):
        form = f"a DNS subdomain of at most {MAX_PREFIX_CHARS} lower-case characters before the slash"
        raise ParameterError(path, f"no key of a label: expected {form}, found {key[:80]!r}")
    if not (len(name) <= MAX_NAME_CHARS and _NAME.fullmatch(name)):
        raise ParameterError(path, f"no key of a label: expected {_NAME_FORM}, found {key[:80]!r}")


def check_value(value: str, path: str) -> None:
    """Raises ParameterError for what cannot be a label's value."""
    if value and not (len(value) <= MAX_NAME_CHARS and _NAME.fullmatch(value)):
        raise ParameterError(path, f"no value of a label: expected nothing or {_NAME_FORM}, found {value[:80]!r}")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One entry of `matchExpressions`."""

    key: str
    operator: Operator
    values: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_key(self.key, "key")
        values = self.values or ()
        if self.operator in ("In", "NotIn"):
            if not values:
                raise ParameterError("values", f"operator {self.operator} needs at least one value, found none")
            for place, value in enumerate(values):
                check_value(value, f"values[{place}]")
        elif values:
            raise ParameterError("values", f"operator {self.operator} takes no values, found {len(values)}")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it holds. `NotIn` holds without the label, too, as in Kubernetes."""
        there = self.key in labels
        if self.operator == "Exists":
            return there
        if self.operator == "DoesNotExist":
            return not there
        is_one = there and labels[self.key] in (self.values or ())
        return is_one if self.operator == "In" else not is_one


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """The parameters of `label-selector-filter`: everything in it has to hold."""

    matchLabels: Mapping[str, str] | None = None
    matchExpressions: Sequence[Requirement] | None = field(default=None)

    def __post_init__(self) -> None:
        for key, value in (self.matchLabels or {}).items():
            path = f"matchLabels.{key}"
            check_key(key, path)
            check_value(value, path)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an endpoint with these labels is meant."""
        wanted = (self.matchLabels or {}).items()
        return all(key in labels and labels[key] == value for key, value in wanted) and all(
            requirement.matches(labels) for requirement in self.matchExpressions or ()
        )
