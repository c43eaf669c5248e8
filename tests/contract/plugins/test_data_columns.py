"""Data between first-party packages: what one consumes under a name, another one produces under that name."""

import importlib
import tomllib
from pathlib import Path

import pytest
from hotbay.scheduling.registry import DEFAULT_PRODUCERS
from hotbay_sdk import Plugin
from hotbay_sdk.protocol.calls import ANY_COLUMN, column_name
from hotbay_sdk.protocol.handshake import TypeDeclaration

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"


def declarations() -> dict[str, TypeDeclaration]:
    """All first-party types that packages provide."""
    found: dict[str, TypeDeclaration] = {}
    for file in sorted(PLUGINS.glob("*/pyproject.toml")):
        name, attribute = tomllib.loads(file.read_text(encoding="utf-8"))["tool"]["hotbay"]["entrypoint"].split(":")
        plugin = getattr(importlib.import_module(name), attribute)
        assert isinstance(plugin, Plugin)
        found |= {declaration.type: declaration for declaration in plugin.declarations}
    return found


TYPES = declarations()
PRODUCED = {(column, name) for name, declaration in TYPES.items() for column in declaration.produces}
COLUMNS = {column for column, _ in PRODUCED}
BUILT_IN_KEYS = {"InFlightLoad", "TokenizedPrompt"}


@pytest.mark.parametrize(
    ("type_name", "column"),
    [
        (name, column)
        for name, declaration in TYPES.items()
        for column in (*declaration.consumes, *declaration.optional)
        if column != ANY_COLUMN
    ],
)
def test_what_is_consumed_is_produced(type_name: str, column: str) -> None:
    name = column_name(column)
    assert name is not None
    assert name.key in BUILT_IN_KEYS or f"{name.key}.{name.field}" in COLUMNS


def test_keys_with_a_default_are_those_that_it_produces() -> None:
    keys = {(column.partition(".")[0], name) for column, name in PRODUCED}
    for key, name in DEFAULT_PRODUCERS.items():
        assert key in BUILT_IN_KEYS or (key, name) in keys
