"""`explain` of a HostConfig: its defaults, and both sides of every bound."""

from pathlib import Path

import pytest
from hotbay.config.host_config import load_host_config
from hotbay.errors import InputError


def load(text):
    environment = {"HOME": "/home/x"}
    return load_host_config(
        text, file="h.yaml", base_directory=Path("/"), environment=environment, is_root=False
    ).explain


def test_a_thousand_decisions_are_kept_and_clients_are_told_nothing():
    explain = load("")
    assert (explain.header, explain.keep, explain.max_bytes) == (False, 1000, 16 << 20)


@pytest.mark.parametrize(
    ("given", "is_taken"),
    [
        ("keep: 0", True),
        ("keep: -1", False),
        ("keep: 100000", True),
        ("keep: 100001", False),
        ("bytes: 1GiB", True),
        ("bytes: 1073741825", False),
        ("bytes: 0", False),
        ("header: true", True),
        ("header: 1", False),
        ("max_bytes: 1MiB", False),
    ],
)
def test_bounds(given, is_taken):
    text = f"explain: {{{given}}}"
    if is_taken:
        load(text)
    else:
        with pytest.raises(InputError, match=r"h\.yaml:1:"):
            load(text)
