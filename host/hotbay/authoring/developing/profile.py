"""The configurations that a project runs with, as text: what its types are decides where they stand. Pure.

Both are ordinary files. Without one of the author's own, the profile is made of the project's types with their defaults, of
weight 1, beside two of the bundled scorers, so that there is something to differ from.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hotbay.errors import InputError, Problem

__all__ = ["BESIDE", "SOURCE", "HostWishes", "host_text", "picker_text"]

BESIDE: Final = ("queue-scorer", "kv-cache-utilization-scorer")
"""Scorers of the bundled package `standard`."""

SOURCE: Final = "project"
"""The source that a `ProjectSource` takes the place of."""

_IN_PROFILE: Final = ("filter", "score", "pick")
_DATA_LAYER: Final = frozenset({"discover", "extract", "source", "watch", "poll"})
_ENDLESS: Final = "1h"
"""Longer than anybody looks at a stopped program, and within what the wire can say."""


@dataclass(frozen=True, slots=True)
class HostWishes:
    """What a host for one project is to be.

    `is_patient`: a process that stands still in a debugger is neither late nor stuck. `types` are the project's, `refs` the
    names under which they are configured.
    """

    plugin_id: str
    capabilities: Sequence[str]
    types: Sequence[str]
    refs: Sequence[str]
    endpoints: Sequence[str]
    listen: str
    has_bundled: bool
    is_patient: bool = False


def picker_text(points: Mapping[str, Iterable[str]], *, beside: Sequence[str] = BESIDE) -> str:
    """The EndpointPickerConfig for types by what they answer.

    Raises:
        InputError: CONFIG_INVALID when all of them are of the data layer, which stands in no profile by itself.
    """
    found = {name: frozenset(words) for name, words in points.items()}
    used = {name: words for name, words in sorted(found.items()) if not words & _DATA_LAYER}
    if not used:
        names = ", ".join(sorted(found))
        hint = "Write an EndpointPickerConfig that uses them in dataLayer, and name it with --config-file."
        raise InputError([Problem("CONFIG_INVALID", f"{names} belong into the data layer", hint=hint)])
    scorers = [name for name in beside if name not in used]
    chosen = [name for name, words in used.items() if words & {*_IN_PROFILE}]
    weights = dict.fromkeys((*scorers, *(name for name in chosen if "score" in used[name])), 1)
    entries = [*scorers, *(name for name in chosen if name not in scorers)]
    document: dict[str, object] = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [{"type": name} for name in (*scorers, *used)],
        "schedulingProfiles": [
            {
                "name": "default",
                "plugins": [
                    {"pluginRef": name, **({"weight": weights[name]} if name in weights else {})} for name in entries
                ],
            }
        ],
    }
    if parsers := [name for name, words in used.items() if "parse" in words]:
        document["requestHandler"] = {"parsers": [{"pluginRef": name} for name in (*parsers, "openai-parser")]}
        document["plugins"] = [*_list(document["plugins"]), {"type": "openai-parser"}]
    if detectors := [name for name, words in used.items() if "saturation" in words]:
        document["flowControl"] = {"saturationDetector": {"pluginRef": detectors[0]}}
    return json.dumps(document, indent=1)


def host_text(wishes: HostWishes) -> str:
    """The HostConfig. A version is in force as soon as its process is READY; one that fails is given up at once."""
    bundled = [{"name": "bundled"}] if wishes.has_bundled else []
    entry: dict[str, object] = {"id": wishes.plugin_id, "grants": list(wishes.capabilities)}
    document: dict[str, object] = {
        "apiVersion": "hotbay/v1alpha1",
        "kind": "HostConfig",
        "state_dir": "state",
        "world": {"engine": "memory"},
        "listen": {"http": wishes.listen},
        "scheduling": {"file": "picker.yaml", "allow_experimental": True},
        "endpoints": [{"url": url, "name": f"server-{number}"} for number, url in enumerate(wishes.endpoints)],
        "sources": [*bundled, {"name": SOURCE, "directory": SOURCE, "copy": False}],
        "types": dict.fromkeys(wishes.types, wishes.plugin_id),
        "packages": [entry],
        "swap": {"shadow": "off", "canary": "off", "guard": "off", "drain": "2s"},
        "supervise": {"budget": {"failures": 1}},
        "isolation": {"level": "none"},
        "logging": {"level": "info", "format": "text", "access": False},
    }
    if wishes.is_patient:
        entry.update(hello=_ENDLESS, ready=_ENDLESS)
        document["bindings"] = {name: {"deadline": _ENDLESS} for name in wishes.refs}
    return json.dumps(document, indent=1)


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []
