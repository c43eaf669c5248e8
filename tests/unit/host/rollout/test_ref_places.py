"""Where in the operator's file a field stands that a plugin refuses."""

from hotbay.config.picker_config import load_picker_config
from hotbay.errors import Place
from hotbay.rollout.refs import RefSpec, ref_error

TEXT = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- name: u
  type: utilization-filter
  parameters:
    threshold: asdf
    conditions:
    - metric: running-requests
    - {metric: waiting-queue, maxValue: many}
    labels: {a.b: 1, a: {b: 2}}
"""


def spec() -> RefSpec:
    config = load_picker_config(TEXT, file="p.yaml")
    (entry,) = config.plugins
    return RefSpec(
        entry.name,
        entry.type,
        entry.parameters,
        entry.place,
        at=lambda path: config.document.place((*entry.path, "parameters", *path)),
    )


def test_ec22_field_that_a_plugin_refuses_is_told_with_its_place() -> None:
    error = {"handle": [1, 1], "path": "threshold", "message": "expected an integer, found 'asdf'"}
    assert ref_error({1: spec()}, error) == (
        "p.yaml:7:16: plugins 'u': parameters.threshold: expected an integer, found 'asdf'"
    )


def test_path_is_followed_as_far_as_it_leads() -> None:
    places = {
        "": (7, 5),
        "threshold": (7, 16),
        "conditions": (9, 5),
        "conditions[0].metric": (9, 15),
        "conditions[1].maxValue": (10, 41),
        "conditions[1].minValue": (10, 7),
        "conditions[7].metric": (9, 5),
        "labels.a.b": (11, 19),
        "labels.a": (11, 25),
        "labels.a.c": (11, 25),
        "limit": (7, 5),
        "]x[": (7, 5),
        "conditions[99999999999999999999]": (9, 5),
    }
    found = {path: spec().place_of(path) for path in places}
    assert found == {path: Place("p.yaml", *place) for path, place in places.items()}


def test_ref_that_nobody_wrote_has_no_place() -> None:
    assert RefSpec("x", "x", {}).place_of("threshold") is None
    assert ref_error({1: RefSpec("x", "x", {})}, {"handle": [1, 1], "path": "a", "message": "m"}) == (
        "plugins 'x': parameters.a: m"
    )


def test_ref_whose_dependency_changed_is_another_one() -> None:
    one, other = RefSpec("d", "t", {"a": 1}), RefSpec("d", "t", {"a": 2})
    assert RefSpec("x", "t", {}, needs=(one,)) != RefSpec("x", "t", {}, needs=(other,))
    assert RefSpec("x", "t", {}, needs=(one,)) == RefSpec(
        "x", "t", {}, Place("elsewhere"), needs=(RefSpec("d", "t", {"a": 1}),)
    )


def test_error_without_a_form_is_told_as_far_as_it_goes() -> None:
    assert ref_error({}, "broken") == "an error without a place"
    assert ref_error({1: spec()}, {"handle": "x"}) == "plugins '?': parameters: "
    assert len(ref_error({}, {"path": "p" * 900, "message": "m" * 900})) < 900
