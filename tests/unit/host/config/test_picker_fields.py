"""The JSON Schema of an EndpointPickerConfig says what the reader takes."""

import pytest
from hotbay.config import picker_fields
from hotbay.config.picker_fields import picker_config_schema
from hotbay.config.picker_model import BAND_MAX_BYTES, BAND_MAX_REQUESTS

SCHEMA = picker_config_schema()
VALUES = {
    "featureGates": "[flowControl=true]",
    "plugins": "[{name: x, type: x, parameters: {a: 1}}]",
    "schedulingProfiles": "[{name: p, plugins: [{pluginRef: x, weight: 2}, {type: y, parameters: {}}]}]",
    "dataLayer": "{injectDefaults: true, sources: [{pluginRef: x, extractors: [{pluginRef: x}]}], discovery: {pluginRef: x}, crossReplicaSyncInterval: 1s}",
    "requestHandler": "{parsers: [{pluginRef: x}]}",
    "flowControl": "{maxBytes: 1Gi, maxRequests: 5, defaultRequestTTL: 1s, noEndpointRequestTTL: 2s, defaultPriorityBand: {maxBytes: 1, maxRequests: 2}, "
    "defaultNegativePriorityBand: {}, priorityBands: [{priority: 1, fairnessPolicyRef: x, orderingPolicyRef: x}], "
    "usageLimitPolicyPluginRef: x, saturationDetector: {pluginRef: x}, enableEviction: true}",
    "saturationDetector": "{pluginRef: x}",
    "parser": "{pluginRef: x}",
}


def test_every_field_of_the_schema_is_read(picker):
    picker("\n".join(f"{name}: {text}" for name, text in VALUES.items()))
    assert set(SCHEMA["properties"]) == {"apiVersion", "kind", *VALUES}


@pytest.mark.parametrize("section", sorted(SCHEMA["$defs"]))
def test_sections_allow_no_other_fields_and_name_what_they_refer_to(section):
    shape = SCHEMA["$defs"][section]
    assert shape["additionalProperties"] is False
    for name in _references(shape):
        assert name in SCHEMA["$defs"]


def _references(value):
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].removeprefix("#/$defs/")
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def test_fields_without_which_an_entry_is_refused_are_required(picker_problems):
    assert SCHEMA["required"] == ["apiVersion", "kind"]
    assert SCHEMA["$defs"]["plugin"]["required"] == ["type"]
    assert SCHEMA["$defs"]["profile"]["required"] == ["name"]
    assert SCHEMA["$defs"]["ref"]["required"] == ["pluginRef"]
    for text in (
        "plugins: [{}]",
        "schedulingProfiles: [{}]",
        "dataLayer: {discovery: {}}",
        "dataLayer: {sources: [{}]}",
    ):
        assert [p.code for p in picker_problems(text)] == ["CONFIG_INVALID"]


def test_numbers_in_descriptions_are_those_of_the_reader():
    assert "1e9" in picker_fields.BAND["maxBytes"]["description"]
    assert BAND_MAX_BYTES == 10**9
    assert str(BAND_MAX_REQUESTS) in picker_fields.BAND["maxRequests"]["description"]
