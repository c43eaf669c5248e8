"""Loading of documents that tests write: each fixture returns a function from text to result or problems."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hotbay.config.documents import Document, load_document
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.config.picker_config import PickerConfig, load_picker_config
from hotbay.config.system_defaults import FactsOf
from hotbay.config.type_facts import TypeFacts
from hotbay.errors import InputError, Problem
from hotbay.scheduling.known_types import BUILTIN_FACTS

PICKER_HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def _problems(load: Callable[[], object]) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        load()
    return caught.value.problems


@pytest.fixture
def document() -> Callable[[str], Document]:
    return lambda text: load_document(text, file="f.yaml")


@pytest.fixture
def document_problems() -> Callable[[str], tuple[Problem, ...]]:
    return lambda text: _problems(lambda: load_document(text, file="f.yaml"))


@pytest.fixture
def host() -> Callable[[str], HostConfig]:
    def load(text: str) -> HostConfig:
        return load_host_config(
            text, file="host.yaml", base_directory=Path("/etc/hotbay"), environment={"HOME": "/home/op"}, is_root=False
        )

    return load


@pytest.fixture
def host_problems(host: Callable[[str], HostConfig]) -> Callable[[str], tuple[Problem, ...]]:
    return lambda text: _problems(lambda: host(text))


@pytest.fixture
def picker() -> Callable[[str], PickerConfig]:
    """Load a text that lacks only its head of two lines."""
    return lambda text: load_picker_config(PICKER_HEAD + text, file="picker.yaml")


@pytest.fixture
def picker_problems(picker: Callable[[str], PickerConfig]) -> Callable[[str], tuple[Problem, ...]]:
    return lambda text: _problems(lambda: picker(text))


@pytest.fixture
def facts() -> FactsOf:
    """What is known of types: the host's own, one for each point, and `alpha-scorer`; `unknown` says nothing of itself."""
    return KNOWN.get


def _stable(*points: str, refs: tuple[str, ...] = ()) -> TypeFacts:
    return TypeFacts(frozenset(points), "stable", refs)


KNOWN = {
    **BUILTIN_FACTS,
    "a-filter": _stable("filter"),
    "a-scorer": _stable("score"),
    "b-scorer": _stable("score"),
    "a-picker": _stable("pick"),
    "b-picker": _stable("pick"),
    "a-handler": _stable("profile_handler"),
    "a-producer": _stable("produce"),
    "a-plugin": _stable("pre_request"),
    "a-policy": _stable("fairness"),
    "b-policy": _stable("ordering"),
    "all-in-one": _stable("filter", "score", "profile_handler"),
    "filtering-detector": _stable("saturation", "filter"),
    "utilization-detector": _stable("saturation", "filter"),
    "fcfs-ordering-policy": _stable("ordering"),
    "global-strict-fairness-policy": _stable("fairness"),
    "static-usage-limit-policy": _stable("usage_limit"),
    "alpha-scorer": TypeFacts(frozenset({"score"}), "alpha"),
    "silent-scorer": TypeFacts(frozenset({"score"})),
    "unknown": TypeFacts(stability="stable"),
    "dependent": _stable("pre_request", refs=("dependency",)),
    "nested": _stable("pre_request", refs=("nested.pluginRef", "pointer.*.pluginRef", "list.pluginRef", "names")),
}
