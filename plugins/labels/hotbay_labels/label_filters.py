"""Filters of labels and of roles. They look at nothing of a request, so that all requests of a call share one row.

Where one of them leaves nobody, there is nobody of that kind: waiting does not help, which `drained="ineligible"` says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hotbay_sdk import Context, Endpoints, Filter, ParameterError, Request

from hotbay_labels.label_tables import LABELS, NO_LABELS, Bools, Flags
from hotbay_labels.package import plugin
from hotbay_labels.selectors import LabelSelector

ROLE: Final = "endpoint.role"
INELIGIBLE: Final = "ineligible"

DECODE_ROLES: Final = frozenset({"decode", "prefill-decode", "both", "encode-prefill-decode"})
PREFILL_ROLES: Final = frozenset({"prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"})
ENCODE_ROLES: Final = frozenset({"encode", "encode-prefill", "encode-prefill-decode"})
"""Values of the label `llm-d.ai/role` for the stages that an endpoint does; `both` is the old word for prefill and decode."""


class _Keeps(Filter):
    """Keeps the rows of which a predicate on one side table holds."""

    _flags: Flags

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Bools]:
        """The same row of flags for every request."""
        return [self._flags.read(endpoints)] * len(requests)


class _LabelSelectorFilter(_Keeps):
    def __init__(self, context: Context, parameters: LabelSelector) -> None:
        self._flags = Flags(LABELS, parameters.matches, NO_LABELS)


@plugin.type("label-selector-filter", reads=[LABELS], parameters=LabelSelector, drained=INELIGIBLE)
class LabelSelectorFilter(_LabelSelectorFilter):
    """Endpoints that a label selector of Kubernetes means."""


@plugin.type("by-label-selector", reads=[LABELS], parameters=LabelSelector, drained=INELIGIBLE)
class ByLabelSelector(_LabelSelectorFilter):
    """The old name of `label-selector-filter`."""

    def __init__(self, context: Context, parameters: LabelSelector) -> None:
        super().__init__(context, parameters)
        context.logger.warning("type by-label-selector is deprecated, its name is label-selector-filter now")


@dataclass(frozen=True, slots=True)
class ByLabelParameters:
    """`validValues`: values of the label that are let through. `allowsNoLabel`: so are endpoints without it."""

    label: str
    validValues: Sequence[str] = field(default=())
    allowsNoLabel: bool = False

    def __post_init__(self) -> None:
        if not self.label:
            raise ParameterError("label", "expected the name of a label, found ''")
        if not self.validValues and not self.allowsNoLabel:
            raise ParameterError("validValues", "is empty, and allowsNoLabel is not true: that would keep no endpoint")

    def admit(self, labels: Mapping[str, str]) -> bool:
        """Whether an endpoint with these labels is let through."""
        return labels[self.label] in self.validValues if self.label in labels else self.allowsNoLabel


@plugin.type("by-label", reads=[LABELS], parameters=ByLabelParameters, drained=INELIGIBLE)
class ByLabel(_Keeps):
    """Endpoints whose label has one of some values."""

    def __init__(self, context: Context, parameters: ByLabelParameters) -> None:
        self._flags = Flags(LABELS, parameters.admit, NO_LABELS)
        context.logger.warning(
            "type by-label is deprecated: label-selector-filter, or a filter of roles, does the same"
        )


def _in(roles: frozenset[str]) -> Callable[[Any], bool]:
    return roles.__contains__


class _RoleFilter(_Keeps):
    """Keeps some roles; an endpoint without the label has the role ""."""

    roles: frozenset[str]

    def __init__(self, context: Context) -> None:
        self._flags = Flags(ROLE, _in(self.roles), "")


@plugin.type("decode-filter", reads=[ROLE], drained=INELIGIBLE)
class DecodeFilter(_RoleFilter):
    """Endpoints that decode, which are all that say nothing of their role, too."""

    roles = DECODE_ROLES | {""}


@plugin.type("prefill-filter", reads=[ROLE], drained=INELIGIBLE)
class PrefillFilter(_RoleFilter):
    """Endpoints that say that they prefill."""

    roles = PREFILL_ROLES


@plugin.type("encode-filter", reads=[ROLE], drained=INELIGIBLE)
class EncodeFilter(_RoleFilter):
    """Endpoints that say that they encode."""

    roles = ENCODE_ROLES
