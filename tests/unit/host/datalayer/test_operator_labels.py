"""Selectors and labels: which endpoints a command means, and what labels say of state and weight."""

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState
from hotbay.datalayer.operations.label_selector import read_selector
from hotbay.datalayer.operator_labels import STATE_LABEL, WEIGHT_LABEL, as_labelled, label_problems
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

LABELS = {"zone": "a", "gpu": "h100", "team/x": ""}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("zone=a", True),
        ("zone==a", True),
        ("zone=b", False),
        ("zone!=b", True),
        ("zone!=a", False),
        ("rack!=1", True),
        ("gpu", True),
        ("spot", False),
        ("!spot", True),
        ("!gpu", False),
        ("zone=a, gpu=h100 ,!spot", True),
        ("zone=a,gpu=a100", False),
        ("team/x=", True),
    ],
)
def test_selector_matches(selector: str, *, matches: bool) -> None:
    assert read_selector(selector).matches(LABELS) is matches


@pytest.mark.parametrize("selector", ["", "a,,b", "=a", "!a=b", "a=b=c", "a in (b)", "-a"])
def test_what_is_no_selector_is_named(selector: str) -> None:
    with pytest.raises(InputError, match="not a label selector"):
        read_selector(selector)


@given(st.text(max_size=40))
def test_any_text_is_a_selector_or_is_refused(text: str) -> None:
    try:
        read_selector(text).matches(LABELS)
    except InputError:
        return


def endpoint(labels: dict[str, str], **fields: object) -> EndpointMetadata:
    return EndpointMetadata("default/a", "a", "h", 1, labels=labels, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given_", "state", "weight", "problems"),
    [
        (endpoint({}, weight=0.5), "active", 0.5, 0),
        (endpoint({STATE_LABEL: "cordoned"}), "cordoned", 1.0, 0),
        (endpoint({STATE_LABEL: "Cordoned"}), "active", 1.0, 1),
        (endpoint({WEIGHT_LABEL: "0.25"}, weight=0.5), "active", 0.25, 0),
        (endpoint({WEIGHT_LABEL: "0"}), "active", 0.0, 0),
        (endpoint({WEIGHT_LABEL: "1.1"}, weight=0.5), "active", 0.5, 1),
        (endpoint({WEIGHT_LABEL: "nan"}), "active", 1.0, 1),
        (endpoint({WEIGHT_LABEL: "x", STATE_LABEL: "x"}), "active", 1.0, 2),
    ],
)
def test_labels_say_state_and_weight(given_: EndpointMetadata, state: str, weight: float, problems: int) -> None:
    labelled = as_labelled(given_)
    assert (labelled.state, labelled.weight) == (state, weight)
    assert len(label_problems(given_)) == problems


def test_label_that_says_active_does_not_uncordon() -> None:
    cordoned = endpoint({STATE_LABEL: "active"}, state=EndpointState.CORDONED)
    assert as_labelled(cordoned).state is EndpointState.CORDONED


def test_store_obeys_labels_and_the_command_goes_over_them() -> None:
    store = EndpointStore()
    store.upsert(endpoint({STATE_LABEL: "cordoned", WEIGHT_LABEL: "0.5"}))
    snapshot = store.publish(1.0)
    assert (snapshot.live.tolist(), float(snapshot.columns["endpoint.weight"][0])) == ([False], 0.5)
    store.override("default/a", state=EndpointState.ACTIVE, weight=0.75)
    snapshot = store.publish(2.0)
    assert (snapshot.live.tolist(), float(snapshot.columns["endpoint.weight"][0])) == ([True], 0.75)
