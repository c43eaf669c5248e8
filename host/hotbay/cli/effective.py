"""`hotbay config print-effective`: a configuration with every default written out, in a form that reads back the same."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

import click
import orjson

from hotbay.cli.files import ENDPOINTS, kind_of, read_text
from hotbay.cli.loading import Given, load_scheduling
from hotbay.cli.offers import bundled_index, index_of, look_at_sources
from hotbay.cli.socket_path import read_host_config
from hotbay.config.documents import load_document
from hotbay.config.health_config import HealthSection
from hotbay.config.host_config import HostConfig
from hotbay.config.host_fields import Section
from hotbay.config.picker_config import (
    API_VERSION,
    KIND,
    DataLayer,
    FlowControl,
    PickerConfig,
    PriorityBand,
    RefEntry,
    load_picker_config,
)
from hotbay.config.swap_config import Swap
from hotbay.config.system_defaults import complete
from hotbay.errors import InputError, Place, Problem

__all__ = ["effective_host", "effective_picker", "print_effective", "yaml_lines"]

Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
# What YAML readers of some version take for a truth value or for nothing.
_NOT_PLAIN: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
# Ends of lines to YAML, which folds them into blanks; JSON leaves them as they are.
_LINE_ENDS: Final = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
_OFF: Final = "off"


def print_effective(
    file: Path | None, picker_file: Path | None = None, picker_text: str | None = None, *, as_json: bool
) -> None:
    """Print what is in force with this file, or without one. Raises `InputError`.

    `picker_file` or `picker_text`: print that scheduling instead, as it is with the packages of the HostConfig.
    """
    given = Given(config_file=file, picker_file=picker_file, picker_text=picker_text)
    if picker_file is not None or picker_text is not None:
        value = _effective_scheduling(read_host_config(file), given)
    else:
        value = effective_host(read_host_config(file)) if file is None else _effective(file)
    if as_json:
        click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2))
    else:
        click.echo("\n".join(yaml_lines(value)))


def _effective_scheduling(host: HostConfig, given: Given) -> dict[str, Value]:
    picker, _ = load_scheduling(host, given, Path.cwd(), read_text)
    offers, _ = look_at_sources(host.sources)
    return effective_picker(complete(picker, index_of(offers, dict(host.types)).facts))


def _effective(file: Path) -> dict[str, Value]:
    text = read_text(file)
    kind = kind_of(load_document(text, file=str(file)))
    if kind == ENDPOINTS:
        hint = "an endpoint file has no defaults: name a HostConfig or an EndpointPickerConfig"
        raise InputError([Problem("CONFIG_INVALID", "is an endpoint file", Place(str(file)), hint=hint)])
    if kind == KIND:
        return effective_picker(complete(load_picker_config(text, file=str(file)), bundled_index().facts))
    return effective_host(read_host_config(file))


def effective_host(section: Section) -> dict[str, Value]:
    """A HostConfig, or a section of one, as a document; absent is what has no value."""
    value: dict[str, Value] = {}
    for name, field in type(section).model_fields.items():
        found = getattr(section, name)
        if found is None and isinstance(section, Swap | HealthSection):
            found = _OFF
        if found is not None:
            value[field.alias or name] = _plain(name, field.alias, found)
    return value


def _plain(name: str, alias: str | None, value: object) -> Value:
    if isinstance(value, Section):
        return effective_host(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(name, alias, inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(name, alias, inner) for inner in value]
    if alias not in (None, name) and isinstance(value, int | float) and not isinstance(value, bool):
        return _quantity(name, value)
    if isinstance(value, Path) or is_dataclass(value):
        return str(value)
    assert value is None or isinstance(value, str | int | float | bool), "a document is made of plain values"
    return value


def _quantity(name: str, value: int | float) -> Value:
    """A field with a unit in its name is written with the unit in its value."""
    if name.endswith("_s"):
        return f"{Decimal(str(value)):f}s"
    return f"{value}B" if name.endswith("_bytes") else value


def effective_picker(config: PickerConfig) -> dict[str, Value]:
    """An EndpointPickerConfig as a document; what is as by default in a section that nobody wrote is left out."""
    value: dict[str, Value] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "featureGates": [f"{name}={str(is_on).lower()}" for name, is_on in config.feature_gates.items()],
        "plugins": [
            {"name": plugin.name, "type": plugin.type, "parameters": _plain("", None, plugin.parameters)}
            for plugin in config.plugins
        ],
        "schedulingProfiles": [
            {"name": profile.name, "plugins": [_ref(ref) for ref in profile.plugins]} for profile in config.profiles
        ],
    }
    if data := _data_layer(config.data_layer):
        value["dataLayer"] = data
    if config.parsers:
        value["requestHandler"] = {"parsers": [_ref(entry) for entry in config.parsers]}
    if flow := _flow_control(config.flow_control, queues=config.queues):
        value["flowControl"] = flow
    return value


def _data_layer(layer: DataLayer) -> dict[str, Value]:
    data: dict[str, Value] = {}
    if not layer.inject_defaults:
        data["injectDefaults"] = False
    if layer.sources:
        data["sources"] = [
            {**_ref(source.source), "extractors": [_ref(extractor) for extractor in source.extractors]}
            for source in layer.sources
        ]
    if layer.discovery is not None:
        data["discovery"] = _ref(layer.discovery)
    return data


def _flow_control(flow: FlowControl, *, queues: bool) -> dict[str, Value]:
    """Without queues nothing but the detector counts."""
    value: dict[str, Value] = {}
    if queues:
        value = {
            "maxBytes": flow.max_bytes,
            "maxRequests": flow.max_requests,
            "defaultRequestTTL": _quantity("_s", flow.request_ttl_s),
            "noEndpointRequestTTL": _quantity("_s", flow.no_endpoint_ttl_s),
            "defaultPriorityBand": _band(flow.default_band, has_priority=False),
            "defaultNegativePriorityBand": _band(flow.negative_band, has_priority=False),
            "priorityBands": [_band(band, has_priority=True) for band in flow.bands],
            **_named("usageLimitPolicyPluginRef", flow.usage_limit),
            "enableEviction": flow.enable_eviction,
        }
    if flow.saturation_detector is not None:
        value["saturationDetector"] = _ref(flow.saturation_detector)
    return value


def _band(band: PriorityBand, *, has_priority: bool) -> dict[str, Value]:
    priority: dict[str, Value] = {"priority": band.priority} if has_priority else {}
    return {
        **priority,
        "maxBytes": band.max_bytes,
        "maxRequests": band.max_requests,
        **_named("fairnessPolicyRef", band.fairness),
        **_named("orderingPolicyRef", band.ordering),
    }


def _named(key: str, entry: RefEntry | None) -> dict[str, Value]:
    return {} if entry is None else {key: entry.ref}


def _ref(entry: RefEntry) -> dict[str, Value]:
    weight: dict[str, Value] = {} if entry.weight is None else {"weight": entry.weight}
    return {"pluginRef": entry.ref, **weight}


def yaml_lines(value: Value, indent: str = "") -> Iterator[str]:
    """The value as YAML in block form, one line at a time."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _entry(f"{indent}{_scalar(key)}:", inner, indent)
    elif isinstance(value, list) and value:
        for inner in value:
            first, *rest = yaml_lines(inner, indent + "  ")
            yield f"{indent}- {first.lstrip()}"
            yield from rest
    else:
        yield indent + _scalar(value)


def _entry(key: str, value: Value, indent: str) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        yield key
        yield from yaml_lines(value, indent + "  ")
    else:
        yield f"{key} {_scalar(value)}"


def _scalar(value: Value) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_PLAIN:
        return value
    return orjson.dumps(value).decode().translate(_LINE_ENDS)
