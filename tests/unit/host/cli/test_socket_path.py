"""Commands find the host of a configuration, also of one that has a mistake: then they are needed most."""

from pathlib import Path

import pytest
from hotbay.cli.exit_codes import NoHostError
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
def test_file_that_does_not_say_where_is_refused_and_told_how_to_name_the_socket(file, text):
    file.write_text(text)
    with pytest.raises(InputError, match=r"--socket STATE_DIR/admin\.sock"):
        find_socket(file)


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("state_dir: state", "state"),
        ("state_dir:   'my state'   # here", "my state"),
        ('"state_dir": "state"', "state"),
        ("state_dir: /var/lib/x", "/var/lib/x"),
    ],
)
def test_host_of_a_file_that_is_no_yaml_any_more_is_found_by_its_line(file, line, folder):
    file.write_text(f"{HEAD}{line}\nendpoints: [\n  - {{url: 'http://a:1'\n")
    assert find_socket(file) == file.parent / folder / "admin.sock"


def test_name_of_the_socket_is_read_from_what_is_no_yaml_any_more(file):
    file.write_text(f"{HEAD}state_dir: state\nlisten:\n  admin: unix:a.sock\nswap: {{guard: [\n")
    assert find_socket(file) == file.parent / "state" / "a.sock"


@pytest.mark.parametrize(
    "text",
    [
        "state_dir:\n  inner: x\nendpoints: [\n",
        "# state_dir: old\nendpoints: [\n",
        "state_dir: *name\nendpoints: [\n",
        "kind: EndpointPickerConfig\nplugins: [\n",
    ],
    ids=["nested", "comment", "alias", "another kind"],
)
def test_what_is_no_yaml_and_does_not_say_where_is_refused(file, text):
    file.write_text(text)
    with pytest.raises(InputError, match="does not say where its host is"):
        find_socket(file)


@pytest.mark.parametrize("text", ["", "# nothing\n", f"{HEAD}endpoints: [\n"])
def test_without_a_word_about_the_folder_it_is_where_hosts_have_it(file, text):
    file.write_text(text)
    assert find_socket(file) == find_socket(None)


def test_nobody_there_is_told_how_to_name_the_socket():
    assert "--socket STATE_DIR/admin.sock" in NoHostError("no host answers").hint
