"""State and weight of an endpoint as its labels say them, for discovery that has no fields for these. Pure.

`hotbay.dev/state: cordoned` cordons, whatever else discovery says; `hotbay.dev/weight: "0.5"` stands in place of its weight.
An endpoint whose label says something else is as it would be without that label, and `label_problems` tells.
"""

from dataclasses import replace
from typing import Final

from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState

__all__ = ["STATE_LABEL", "WEIGHT_LABEL", "as_labelled", "label_problems", "read_weight"]

STATE_LABEL: Final = "hotbay.dev/state"
WEIGHT_LABEL: Final = "hotbay.dev/weight"


def as_labelled(endpoint: EndpointMetadata) -> EndpointMetadata:
    """The endpoint with what its labels say; itself when they say nothing."""
    labels = endpoint.labels
    if STATE_LABEL not in labels and WEIGHT_LABEL not in labels:
        return endpoint
    is_cordoned = labels.get(STATE_LABEL) == EndpointState.CORDONED
    weight = read_weight(labels[WEIGHT_LABEL]) if WEIGHT_LABEL in labels else None
    return replace(
        endpoint,
        state=EndpointState.CORDONED if is_cordoned else endpoint.state,
        weight=endpoint.weight if weight is None else weight,
    )


def label_problems(endpoint: EndpointMetadata) -> tuple[str, ...]:
    """What is wrong with these labels, in words; each is ignored."""
    found = []
    state, weight = endpoint.labels.get(STATE_LABEL), endpoint.labels.get(WEIGHT_LABEL)
    if state is not None and state not in list(EndpointState):
        found.append(f"label {STATE_LABEL}: expected active or cordoned, found {state[:80]!r}")
    if weight is not None and read_weight(weight) is None:
        found.append(f"label {WEIGHT_LABEL}: expected a number from 0 to 1, found {weight[:80]!r}")
    return tuple(found)


def read_weight(text: str) -> float | None:
    """A weight of 0 to 1 in digits, None for anything else."""
    try:
        weight = float(text)
    except ValueError:
        return None
    return weight if 0.0 <= weight <= 1.0 else None
