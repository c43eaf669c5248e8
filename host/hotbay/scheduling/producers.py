"""Which producers a configuration lacks: types to create by themselves, as the default makers of what is consumed. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from hotbay_sdk.protocol.calls import column_name

from hotbay.scheduling.fields import instance_needs
from hotbay.scheduling.plan import RefPlan

__all__ = ["missing_producers"]


def missing_producers(refs: Sequence[RefPlan], defaults: Mapping[str, str]) -> tuple[str, ...]:
    """Types to create by themselves: default producers of keys that are needed and that no ref produces.

    What is taken as optional is not made for its sake. A column of a producer that is named is made where the name is that
    of the key's default type.
    """
    produced = {column for ref in refs for column in ref.produces}
    configured = {ref.type for ref in refs}
    return tuple(dict.fromkeys(_wanted(refs, defaults, produced, configured)))


def _wanted(
    refs: Sequence[RefPlan], defaults: Mapping[str, str], produced: set[str], configured: set[str]
) -> Iterable[str]:
    names = (
        name for ref in refs if ref.declaration is not None for name in instance_needs(ref.declaration, ref.facts)[0]
    )
    for column in map(column_name, names):
        if column is None:
            continue
        default = defaults.get(column.key)
        missing = f"{column.key}.{column.field}" not in produced
        if missing and default is not None and default not in configured and column.producer in ("", default):
            yield default
