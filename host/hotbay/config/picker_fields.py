"""The fields of an EndpointPickerConfig, section by section: what the reader takes, and the JSON Schema made from it. Pure.

Both come from one table, so that an editor accepts what the host does.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from hotbay.config.wording import Value

__all__ = [
    "BAND",
    "DATA_LAYER",
    "ENTRY",
    "FLOW_CONTROL",
    "GATES",
    "PLUGIN",
    "PROFILE",
    "REF",
    "REQUEST_HANDLER",
    "SOURCE",
    "TOP",
    "picker_config_schema",
]

Fragment: TypeAlias = dict[str, Value]
Fields: TypeAlias = Mapping[str, Fragment]

GATES: Final = {"flowControl": False, "haPopulateNonLeaderDatastore": True}
"""Registered feature gates, and whether they are on without being named."""

_TEXT: Final[Fragment] = {"type": "string", "minLength": 1}
_NAME: Final[Fragment] = {"type": "string", "minLength": 1, "maxLength": 253}
_QUANTITY: Final[Fragment] = {"type": ["integer", "string"], "examples": ["1Gi", 5000]}
_DURATION: Final[Fragment] = {"type": "string", "examples": ["60s", "0s"]}


def _said(fragment: Fragment, description: str) -> Fragment:
    return {**fragment, "description": description}


def _list_of(section: str) -> Fragment:
    return {"type": "array", "items": {"$ref": f"#/$defs/{section}"}}


def _one(section: str) -> Fragment:
    return {"$ref": f"#/$defs/{section}"}


_REF_FIELD: Final = _said(_NAME, "Name of one of `plugins`.")

REF: Final[Fields] = {"pluginRef": _REF_FIELD}
PLUGIN: Final[Fields] = {
    "name": _said(_NAME, "By default the type."),
    "type": _said(_NAME, "Which type of plugin it is an instance of."),
    "parameters": {"type": "object", "description": "Read and checked by the type itself."},
}
ENTRY: Final[Fields] = {
    "pluginRef": _REF_FIELD,
    "weight": {"type": "number", "minimum": 0, "description": "Of a scorer, by default 1."},
    "type": _said(_NAME, "Instead of `pluginRef`: an instance of its own."),
    "parameters": {"type": "object", "description": "With `type`: read and checked by the type itself."},
}
PROFILE: Final[Fields] = {"name": _NAME, "plugins": _list_of("profileEntry")}
SOURCE: Final[Fields] = {"pluginRef": _REF_FIELD, "extractors": _list_of("ref")}
DATA_LAYER: Final[Fields] = {
    "injectDefaults": {"type": "boolean", "default": True},
    "sources": _list_of("source"),
    "discovery": _one("ref"),
    "peerDiscovery": _one("ref"),
    "crossReplicaSyncerPluginRef": _said(_NAME, "Not carried out in this release."),
    "crossReplicaSyncInterval": _said(_DURATION, "Has no effect without a syncer."),
}
REQUEST_HANDLER: Final[Fields] = {"parsers": _list_of("ref")}
BAND: Final[Fields] = {
    "priority": {"type": "integer"},
    "maxBytes": _said(_QUANTITY, "By default 1e9; 0 counts as unset."),
    "maxRequests": _said(_QUANTITY, "By default 5000; 0 counts as unset."),
    "fairnessPolicyRef": _said(_NAME, "By default global-strict-fairness-policy."),
    "orderingPolicyRef": _said(_NAME, "By default fcfs-ordering-policy."),
}
FLOW_CONTROL: Final[Fields] = {
    "maxBytes": _said(_QUANTITY, "0 is no limit."),
    "maxRequests": _said(_QUANTITY, "0 is no limit."),
    "defaultRequestTTL": _said(_DURATION, "By default 60s; 0s never expires."),
    "noEndpointRequestTTL": _said(_DURATION, "By default as defaultRequestTTL."),
    "defaultPriorityBand": _one("priorityBand"),
    "defaultNegativePriorityBand": _one("priorityBand"),
    "priorityBands": _list_of("priorityBand"),
    "usageLimitPolicyPluginRef": _said(_NAME, "By default static-usage-limit-policy."),
    "saturationDetector": _one("ref"),
    "enableEviction": {"type": "boolean", "default": False},
}
TOP: Final[Fields] = {
    "apiVersion": {"enum": ["llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1"]},
    "kind": {"const": "EndpointPickerConfig"},
    "featureGates": {
        "type": "array",
        "items": _said(_TEXT, f"NAME or NAME=true or NAME=false, NAME being one of {', '.join(GATES)}."),
    },
    "plugins": _list_of("plugin"),
    "schedulingProfiles": _list_of("profile"),
    "dataLayer": _one("dataLayer"),
    "requestHandler": _one("requestHandler"),
    "flowControl": _one("flowControl"),
    "saturationDetector": {**_one("ref"), "deprecated": True},
    "parser": {**_one("ref"), "deprecated": True},
}
_SECTIONS: Final[Mapping[str, tuple[Fields, tuple[str, ...]]]] = {
    "ref": (REF, ("pluginRef",)),
    "plugin": (PLUGIN, ("type",)),
    "profile": (PROFILE, ("name",)),
    "profileEntry": (ENTRY, ()),
    "source": (SOURCE, ("pluginRef",)),
    "dataLayer": (DATA_LAYER, ()),
    "requestHandler": (REQUEST_HANDLER, ()),
    "priorityBand": (BAND, ()),
    "flowControl": (FLOW_CONTROL, ()),
}


def picker_config_schema() -> dict[str, Value]:
    """The JSON Schema of an EndpointPickerConfig. A null stands for an absent field everywhere."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "EndpointPickerConfig",
        **_object(TOP, ("apiVersion", "kind")),
        "$defs": {name: _object(fields, required) for name, (fields, required) in _SECTIONS.items()},
    }


def _object(fields: Fields, required: tuple[str, ...]) -> Fragment:
    properties: Fragment = {
        name: fragment
        if name in required or name in ("apiVersion", "kind")
        else {"anyOf": [fragment, {"type": "null"}]}
        for name, fragment in fields.items()
    }
    shape: Fragment = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**shape, "required": list(required)} if required else shape
