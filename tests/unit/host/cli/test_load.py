"""What `hotbay run` and `hotbay config validate` read, before anything runs."""

from pathlib import Path

import pytest
from hotbay.cli.loading import Given, load
from hotbay.cli.socket_path import find_socket
from hotbay.cli.validate import validate_file, validate_files
from hotbay.errors import InputError

HOST = "apiVersion: hotbay/v1alpha1\nkind: HostConfig\n"
PICKER = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: queue-scorer}]\n"


@pytest.fixture
def file(tmp_path):
    def write(text, name="host.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_options_need_no_home_when_the_file_says_where_state_goes(file, monkeypatch):
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    loaded = load(Given(file(HOST + "state_dir: /s\n"), endpoints=("http://a:1",), listen="127.0.0.1:0"))
    assert str(loaded.host.state_dir) == "/s"
    assert [str(entry.url) for entry in loaded.host.endpoints] == ["http://a:1"]


def test_files_that_were_looked_at_are_told_when_one_is_bad(file, tmp_path):
    host = file(HOST + "scheduling: {file: picker.yaml}\n")
    files = {}
    with pytest.raises(InputError, match=r"picker\.yaml: CONFIG_INVALID: cannot be read"):
        load(Given(host), files)
    assert set(files) == {host, tmp_path / "picker.yaml"}


def test_c09_a_file_that_was_emptied_is_refused_while_the_host_runs(file):
    host = file("# nothing\n")
    assert load(Given(host)).host.endpoints == ()
    with pytest.raises(InputError, match="EMPTY_CONFIG: the file is empty now"):
        load(Given(host), may_be_blank=False)


@pytest.fixture
def volume(tmp_path):
    """A ConfigMap's volume: files are links through `..data`, which leads to the folder of a version."""
    version = tmp_path / "..2026_1"
    version.mkdir()
    (version / "host.yaml").write_text(HOST + "state_dir: state\nscheduling: {file: picker.yaml}\n")
    (version / "picker.yaml").write_text(PICKER)
    (tmp_path / "..data").symlink_to(version.name)
    for name in ("host.yaml", "picker.yaml"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    return tmp_path


def test_paths_count_from_the_folder_that_is_written_and_not_from_where_a_link_leads(volume, monkeypatch):
    loaded = load(Given(volume / "host.yaml"))
    assert (loaded.picker_directory, loaded.host.scheduling.file) == (volume, volume / "picker.yaml")
    assert load(Given(volume / "host.yaml", volume / "picker.yaml")).picker_directory == volume
    assert find_socket(volume / "host.yaml") == volume / "state" / "admin.sock"
    monkeypatch.chdir(volume)
    loaded = load(Given(Path("host.yaml"), Path("picker.yaml")))
    assert (loaded.picker_directory, loaded.host.state_dir) == (volume, volume / "state")


def test_validate_counts_paths_from_the_folder_that_is_written(volume, capsys):
    host = volume / "..2026_1" / "host.yaml"
    host.write_text(host.read_text() + "sources: [{name: own, directory: packages}]\n")
    (volume / "packages").mkdir()
    assert validate_files([volume / "host.yaml"]) == 78
    said = capsys.readouterr().err
    assert f"{volume}/packages" in said, said
    assert "is not there" not in said


BAD_LAYER = PICKER.replace("queue-scorer", "file-discovery") + "dataLayer: {discovery: {pluginRef: file-discovery}}\n"
LISTED = "{type: static-discovery, parameters: {endpoints: [{name: a, address: nowhere, port: 1}]}}"
BAD_LIST = PICKER.replace("{type: queue-scorer}", LISTED) + "dataLayer: {discovery: {pluginRef: static-discovery}}\n"


@pytest.mark.parametrize("text", [PICKER + "plugin: []\n", BAD_LAYER, BAD_LIST], ids=["typo", "parameters", "list"])
def test_validate_reads_the_scheduling_that_a_host_would_run_with(file, capsys, text):
    file(text, "picker.yaml")
    named = file(HOST + "scheduling: {file: picker.yaml}\n")
    inline = file(HOST + "scheduling:\n  text: |\n" + "".join(f"    {line}\n" for line in text.splitlines()), "b.yaml")
    for path in (named, inline):
        assert validate_files([path]) == 78
        assert "picker.yaml:" in capsys.readouterr().err or path is inline
    assert validate_files([file(text, "own.yaml")]) == 78


def test_validate_knows_endpoint_files(file):
    good = "endpoints: [{name: a, address: 127.0.0.1, port: 1}]\n"
    assert validate_file(file(good)) == "endpoint file"
    with pytest.raises(InputError, match=r"endpoints\[0\]\.port"):
        validate_file(file(good.replace("port: 1", "port: 0")))


def test_validate_prints_warnings(file, capsys):
    assert validate_files([file(PICKER.replace("llm-d.ai", "inference.networking.x-k8s.io"))]) == 0
    assert "warning: " in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n"])
def test_validate_refuses_an_empty_document(file, capsys, text):
    assert validate_files([file(text)]) == 78
    assert "EMPTY_CONFIG: the document is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apiVersion: hotbay/v1alpha1\nkind: HostConfg\n", "expected 'HostConfig', found the text 'HostConfg'"),
        ("kind: HostConfg\n", "expected 'HostConfig', found the text 'HostConfg'"),
        ("apiVersion: hotbay/v1alpha1\nkind: Nothing\n", "expected 'HostConfig'"),
        (PICKER.replace("PickerConfig", "PikerConfig"), "expected EndpointPickerConfig"),
        ("kind: Deployment\n", "expected HostConfig or EndpointPickerConfig, found the text 'Deployment'"),
        ("kind: 3\n", "expected HostConfig or EndpointPickerConfig, found the number 3"),
    ],
)
def test_validate_says_which_kind_was_meant(file, capsys, text, said):
    assert validate_files([file(text)]) == 78
    assert said in capsys.readouterr().err


def test_validate_reports_folders_and_types_together(file, capsys):
    path = file(
        HOST
        + "state_dir: /s\nsources: [{name: mine, directory: nope}, {name: bundled, fetch: 'off'}]\n"
        + "scheduling: {file: picker.yaml}\nbindings: {other: {deadline: 50ms}}\n"
    )
    file(PICKER.replace("queue-scorer", "nosuch"), "picker.yaml")
    assert validate_files([path]) == 78
    said = capsys.readouterr().err
    for part in (
        "host.yaml:4:24: FETCH_FAILED: sources[0].directory: the folder of source 'mine' is not there",
        "picker.yaml:3:11: UNKNOWN_TYPE: plugin type 'nosuch'",
        "UNDEFINED_REF: bindings.other",
    ):
        assert part in said


def test_validate_says_what_it_cannot_know(file, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    path = file(HOST + "state_dir: /s\nsources: [{name: mine, directory: mine}]\nscheduling: {file: picker.yaml}\n")
    file(PICKER.replace("queue-scorer", "max-score-picker"), "picker.yaml")
    assert validate_files([path]) == 0
    said = capsys.readouterr()
    assert said.out == f"{path}: valid HostConfig; parameters are the plugins' own and were not checked\n"
    assert not said.err


def test_validate_says_that_a_folder_has_no_package_yet(file, tmp_path, capsys):
    (tmp_path / "packages").mkdir()
    picker = PICKER.replace("queue-scorer", "queue-depth-scorer").replace("\n", "\n    ")
    host = HOST + f"sources: [{{name: mine, directory: packages}}]\nscheduling:\n  text: |\n    {picker}\n"
    assert validate_files([file(host)]) == 78
    said = capsys.readouterr().err
    assert "'queue-depth-scorer' is provided by no package and not by the host; sources asked: mine" in said
    assert "source 'mine' has no package yet" in said
    assert "hotbay publish" in said
    assert "did you mean" not in said
    assert "max-score-picker" not in said
