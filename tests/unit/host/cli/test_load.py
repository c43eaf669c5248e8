"""What `hotbay run` and `hotbay config validate` read, before anything runs."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from hotbay.cli.loading import Given, load
from hotbay.cli.main import commands
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
    assert (
        said.out
        == f"{path}: valid HostConfig; parameters are the plugins' own; these, and what plugins take from each other, show when they run\n"
    )
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


TEXT = PICKER.replace("queue-scorer", "max-score-picker")


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No packages beside the host: what a checkout has built makes no difference."""
    monkeypatch.setattr("hotbay.cli.offers.bundled_folder", lambda part: tmp_path / "none")
    monkeypatch.setattr("hotbay.cli.validate.folder_of_source", lambda source: None)


def test_picker_alone_is_checked_against_the_types_that_are_known(file, capsys, nowhere):
    text = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- {type: random-picker}\n- {type: max-score-picker}\n"
    assert validate_files([file(text)]) == 78
    assert "has 2 pickers, 'random-picker' and 'max-score-picker'" in capsys.readouterr().err
    assert (
        validate_files(
            [file(text.replace("- {type: max-score-picker}", "- {type: nobodys}\n- {type: header-profile-handler}"))]
        )
        == 0
    )
    said = capsys.readouterr().err
    assert "warning: " in said
    assert "UNKNOWN_TYPE: plugin type 'nobodys'" in said
    assert "'header-profile-handler' is alpha" in said


def test_text_is_checked_with_a_host_config_or_without_one(file, capsys, nowhere):
    assert validate_files([], picker_text=TEXT) == 0
    assert "command line: valid EndpointPickerConfig" in capsys.readouterr().out
    path = file(HOST + "state_dir: /s\nsources: []\nscheduling: {file: absent.yaml}\n")
    assert validate_files([path], picker_text=TEXT) == 0
    assert validate_files([path], picker_text=TEXT.replace("max-score-picker", "header-profile-handler")) == 78
    said = capsys.readouterr().err
    assert "--config-text:3:" in said
    assert "scheduling: {allow_experimental: true}" in said
    assert validate_files([path], picker_file=file(TEXT, "other.yaml")) == 0
    assert validate_files([path]) == 78


def test_alpha_is_allowed_by_the_host_config(file, nowhere):
    text = TEXT.replace("max-score-picker", "header-profile-handler")
    allowed = HOST + "state_dir: /s\nsources: []\nscheduling: {allow_experimental: true}\n"
    assert validate_files([file(allowed)], picker_text=text) == 0


def test_problems_of_data_layer_and_profiles_are_told_at_once(file, capsys, nowhere):
    text = (
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: random-picker}, {type: max-score-picker}]\n"
        "dataLayer: {sources: [{pluginRef: random-picker}]}\n"
    )
    assert validate_files([], picker_text=text) == 78
    said = capsys.readouterr().err
    assert "is no data source" in said
    assert "has 2 pickers" in said


def test_file_of_models_is_checked(file, capsys):
    objective = "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {name: a}\nspec: {priority: 1, poolRef: {name: p}}\n"
    assert validate_files([file(f"{objective}---\n{objective.replace('name: a', 'name: b')}")]) == 0
    assert "valid file of models" in capsys.readouterr().out
    assert validate_files([file(objective.replace("priority: 1", "priority: high"))]) == 78


def test_command_line_allows_experimental_types(file):
    path = file(HOST + "state_dir: /s\n")
    assert not load(Given(config_file=path, picker_text=TEXT)).host.scheduling.allow_experimental
    assert load(Given(config_file=path, picker_text=TEXT, allow_experimental=True)).host.scheduling.allow_experimental


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["config", "schema"], 0, '"HostConfig"'),
        (["config", "schema", "EndpointPickerConfig"], 0, '"schedulingProfiles"'),
        (["config", "schema", "Nothing"], 2, "is not one of"),
        (["config", "validate"], 2, "name FILES, or --config-file or --config-text"),
        (["config", "validate", "--config-file", "a", "--config-text", "b"], 2, "exclude each other"),
        (["config", "print-effective", "--config-file", "a", "--config-text", "b"], 2, "exclude each other"),
        (["run", "--config-file", "a", "--config-text", "b"], 2, "exclude each other"),
        (["config", "validate", "--config-text", TEXT], 0, "valid EndpointPickerConfig"),
    ],
)
def test_commands_take_a_scheduling_by_file_or_by_text(arguments, code, said, nowhere):
    result = CliRunner().invoke(commands, arguments)
    assert (result.exit_code, said in result.output) == (code, True), result.output


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("port", value) for value in ("true", "0", "70000", "8000.0", "'08000'", "'a'", "''", "-1", "null")),
        *(("address", value) for value in ("''", "'a b'", "'http://h'", "true", "1")),
    ],
)
def test_c30_port_or_address_that_is_none_is_refused_with_its_path(file, field, value):
    entry = {"port": "8000", "address": "10.0.0.1", field: value}
    text = f"endpoints: [{{name: a, address: {entry['address']}, port: {entry['port']}}}]\n"
    with pytest.raises(InputError) as caught:
        validate_file(file(text))
    (problem,) = caught.value.problems
    assert problem.path in (f"endpoints[0].{field}", "endpoints[0]")
    assert problem.place.line == 1


def test_c30_port_may_be_a_text_as_in_the_reference(file):
    assert validate_file(file("endpoints: [{name: a, address: 10.0.0.1, port: '8000'}]\n")) == "endpoint file"


@pytest.mark.parametrize(
    "value", ["true", "0", "70000", "8000", "'8000'", "8000.0", "''", "'a b:1'", "'http://h'", "'h:70000'", "'h:'"]
)
def test_c30_address_to_listen_on_that_is_none_is_refused_with_its_path(file, value):
    with pytest.raises(InputError) as caught:
        validate_file(file(HOST + f"state_dir: /s\nlisten: {{http: {value}}}\n"))
    assert [(problem.path, problem.place.line) for problem in caught.value.problems] == [("listen.http", 4)]
