"""Loading of documents that tests write: each fixture returns a function from text to result or problems."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hotbay.config.documents import Document, load_document
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.config.picker_config import PickerConfig, load_picker_config
from hotbay.errors import InputError, Problem

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
