"""Commands find the host of a configuration, also of one that has a mistake: then they are needed most."""

from pathlib import Path

import pytest
from hotbay.cli.socket_path import find_socket
from hotbay.errors import InputError

HEAD = "apiVersion: hotbay/v1alpha1\nkind: HostConfig\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "host.yaml"


def test_socket_is_below_the_state_directory(file):
    file.write_text(f"{HEAD}state_dir: state\n")
    assert find_socket(file) == file.parent / "state" / "admin.sock"


def test_mistake_elsewhere_does_not_hide_the_host(file):
    file.write_text(f"{HEAD}state_dir: state\nlisten: {{http: nonsense, admin: 'unix:a.sock'}}\nswap: {{guard: 5x}}\n")
    assert find_socket(file) == file.parent / "state" / "a.sock"


@pytest.mark.parametrize(
    "text",
    ["state_dir: [", "- a list", f"{HEAD}state_dir: 7\n", f"{HEAD}listen: {{admin: 'tcp:1'}}\n", "kind: Other\n"],
)
def test_file_that_does_not_say_where_is_refused(file, text):
    file.write_text(text)
    with pytest.raises(InputError):
        find_socket(file)
