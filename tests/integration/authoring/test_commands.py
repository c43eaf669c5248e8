"""An author's way, as commands: a new project is called, judged and packed as it is; what fails says why and where."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hotbay.authoring.scaffold import POINTS

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

HOTBAY = Path(sys.executable).with_name("hotbay")
TIMEOUT_S = 110
ENDPOINTS = "default/a: {waiting: 1, kv_usage: 0.2, total: 0.1}\ndefault/b: {waiting: 9, kv_usage: 0.9, total: 0.9}\n"

ANSWERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "scorer": lambda page: page["results"] == [{"default/a": 0.875, "default/b": 0.0}],
    "filter": lambda page: page["results"] == [["default/a"]],
    "picker": lambda page: set(page["results"][0]) == {"default/a", "default/b"},
    "producer": lambda page: page["results"] == [{"PromptLength.chars": 11.0}],
    "profile-handler": lambda page: page["results"] == [["default", "primary: 'default'"]],
    "pre-request": lambda page: page["results"] == [],
    "extractor": lambda page: page["results"] == [{"queue_depth": 5.0}],
    "admitter": lambda page: page["results"] == [{"admitted": True}],
}
GIVEN = {"extractor": ("--payload", "page.txt")}
"""What a type that sees no request is called with."""


def hotbay(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([HOTBAY, *arguments], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S)


@pytest.fixture(scope="module")
def new_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The project of a point, made once, with its requirements.lock."""
    folder = tmp_path_factory.mktemp("projects")

    def make(point: str) -> Path:
        project = folder / f"my-{point}"
        if not project.exists():
            finished = hotbay("new", project.name, "--point", point, cwd=folder)
            assert finished.returncode == 0, finished.stderr
            assert "warning" not in finished.stderr
            (project / "endpoints.yaml").write_text(ENDPOINTS)
        return project

    return make


@pytest.mark.parametrize("point", [point for point in POINTS if point != "discovery"])
def test_a_new_project_is_called_as_it_lies_there(point: str, new_project: Callable[[str], Path]) -> None:
    project = new_project(point)
    given = GIVEN.get(point, ("--endpoints", "endpoints.yaml", "--picks", "2"))
    finished = hotbay("call", project.name, *given, "-o", "json", cwd=project)
    assert finished.returncode == 0, finished.stderr
    page = json.loads(finished.stdout)
    assert ANSWERS[point](page), page
    assert page["errors"] == []
    assert len(page["latency_us"]) == 1


def test_a_new_project_is_packed_at_once_and_its_package_called(
    new_project: Callable[[str], Path], tmp_path: Path
) -> None:
    project = new_project("scorer")
    package = tmp_path / "package"
    packed = hotbay("pack", ".", "--out", str(package), cwd=project)
    assert packed.returncode == 0, packed.stderr

    called = hotbay("call", "my-scorer", "--package", str(package), "--endpoints", "endpoints.yaml", cwd=project)
    assert called.returncode == 0, called.stderr
    assert called.stdout.startswith("request 0: scores, best first\n  0.875  default/a\n  0  default/b\nlatency ")


def test_a_new_project_keeps_the_protocol(new_project: Callable[[str], Path]) -> None:
    project = new_project("scorer")
    rules = ("start.hello", "calls.answers", "stop.drain")
    finished = hotbay("conformance", "--package", ".", *(f"--rule={rule}" for rule in rules), cwd=project)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.splitlines()[:2] == ["TAP version 14", "1..3"]
    assert finished.stdout.count("\nok ") == 3


def test_a_discovery_is_heard_until_it_is_ready_and_on_when_it_is_followed(
    new_project: Callable[[str], Path], tmp_path: Path
) -> None:
    project = new_project("discovery")
    (tmp_path / "a.txt").write_text("10.0.0.1:8000")
    (tmp_path / "parameters.yaml").write_text(f"{{folder: {tmp_path}, interval_s: 0.05}}")
    given = ("call", project.name, "--parameters", str(tmp_path / "parameters.yaml"))
    finished = hotbay(*given, cwd=project)
    assert finished.returncode == 0, finished.stderr
    first, ready = finished.stdout.splitlines()
    assert first == "upsert    default/a  10.0.0.1:8000"
    assert ready.startswith("ready     1 endpoint after ")
    command = [HOTBAY, *given, "--follow"]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stdout.readline().rstrip() == first
        assert following.stdout.readline().startswith("ready ")
        (tmp_path / "a.txt").unlink()
        assert following.stdout.readline().rstrip() == "delete    default/a"
        following.send_signal(signal.SIGINT)
        assert following.wait(TIMEOUT_S) == 0


def test_a_discovery_that_names_what_no_host_takes_says_so(new_project: Callable[[str], Path], tmp_path: Path) -> None:
    project = new_project("discovery")
    (tmp_path / "a.txt").write_text("0.0.0.0:8000")
    (tmp_path / "parameters.yaml").write_text(f"{{folder: {tmp_path}}}")
    finished = hotbay("call", project.name, "--parameters", str(tmp_path / "parameters.yaml"), cwd=project)
    assert finished.returncode == 1
    assert "refused   default/a  address: expected no unspecified" in finished.stdout
    assert "  what to do: have the plugin name the address" in finished.stdout


def test_an_extractor_is_called_with_a_payload_and_says_so(new_project: Callable[[str], Path]) -> None:
    project = new_project("extractor")
    finished = hotbay("call", project.name, cwd=project)
    assert finished.returncode == 78
    assert "Give --payload FILE" in finished.stderr
    (project / "broken.txt").write_text("<html>")
    finished = hotbay("call", project.name, "--payload", "broken.txt", cwd=project)
    assert finished.returncode == 78
    assert "this is not of the payload metrics" in finished.stderr
    finished = hotbay("call", project.name, "--payload", "page.txt", "--repeat", "3", cwd=project)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("payload 0: attributes\n  queue_depth: 5.0\nlatency of 3 calls:")


EVENTS = """
from hotbay_sdk import EventExtractor, Plugin

plugin = Plugin("sample")

@plugin.type("sample-scorer", payload="object:/v1/Pod", attributes={"rank": "i64"})
class Ranks(EventExtractor):
    def extract(self, event):
        return {event["key"]: {"rank": event["object"]["spec"]["rank"], **event["object"]["spec"].get("more", {})}}
"""
PODS = "\n---\n".join(
    f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: n}}\nspec: {spec}"
    for name, spec in (("a", "{rank: 1}"), ("b", "{rank: 2, more: {other: 1}}"))
)


def test_an_extractor_of_events_is_told_of_each_object_and_what_a_host_would_refuse_is_an_error(
    packages: Any, tmp_path: Path
) -> None:
    packages.make(tmp_path / "events", EVENTS)
    (tmp_path / "pods.yaml").write_text(PODS)
    finished = hotbay(
        "call", "sample-scorer", "--package", "events", "--payload", "pods.yaml", "-o", "json", cwd=tmp_path
    )
    assert finished.returncode == 1, finished.stderr
    page = json.loads(finished.stdout)
    assert page["results"] == [{"n/a": {"rank": 1}}, None]
    assert [(error["request"], error["error"][:10]) for error in page["errors"]] == [(1, "BAD_RESULT")]


SOURCES = """
from hotbay_sdk import NotificationSource, Plugin, PollingSource

plugin = Plugin("sample")

@plugin.type("sample-scorer", payload="object:/v1/Pod")
class Ranked(NotificationSource):
    def notify(self, event):
        return event if event["object"]["spec"]["rank"] > 1 else None

@plugin.type("sample-poller", payload="json")
class Asking(PollingSource):
    def poll(self, endpoint):
        return {"asked": endpoint["address"]}
"""
POOL = "endpoints:\n- {name: a, address: 10.0.0.1, port: 8000}\n"


def test_a_source_gives_events_back_and_who_polls_is_given_endpoints(packages: Any, tmp_path: Path) -> None:
    packages.make(tmp_path / "sources", SOURCES, types=("sample-scorer", "sample-poller"))
    (tmp_path / "pods.yaml").write_text(PODS)
    (tmp_path / "pool.yaml").write_text(POOL)
    finished = hotbay("call", "sample-scorer", "--package", "sources", "--payload", "pods.yaml", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "event 0: the event as it goes on\n  dropped\n" in finished.stdout
    assert (
        'event 1: the event as it goes on\n  type: "add_or_update"\n  kind: "/v1/Pod"\n  key: "n/b"\n'
        in finished.stdout
    )
    finished = hotbay("call", "sample-poller", "--package", "sources", cwd=tmp_path)
    assert "Give --payload FILE: endpoints, by the form of an endpoint file" in finished.stderr
    finished = hotbay("call", "sample-poller", "--package", "sources", "--payload", "pool.yaml", cwd=tmp_path)
    assert finished.stdout.startswith('endpoint 0: payload\n  asked: "10.0.0.1"\n')


KINDS = """
import math
from hotbay_sdk import Extractor, Plugin, Scorer

plugin = Plugin("sample")

@plugin.type("sample-maker", payload="json", attributes={"temperature": "f32", "slots": "i64"})
class Maker(Extractor):
    def extract(self, payload, endpoint):
        return {}

@plugin.type("sample-scorer", reads=["attribute.temperature", "attribute.slots"])
class Reader(Scorer):
    def score(self, request, endpoint):
        unknown = math.isnan(endpoint.column("attribute.temperature")), endpoint.column("attribute.slots") == -1
        return 1.0 if all(unknown) else 0.5 if any(unknown) else 0.0
"""


def test_attributes_are_of_the_kind_that_another_type_of_the_package_declares(packages: Any, tmp_path: Path) -> None:
    packages.make(tmp_path / "kinds", KINDS, types=("sample-maker", "sample-scorer"))
    given = tmp_path / "endpoints.yaml"
    called = ("call", "sample-scorer", "--package", "kinds", "--endpoints", given.name, "-o", "json")
    given.write_text("a: {attribute.temperature: 41, attribute.slots: 3}\nb: {}\n")
    finished = hotbay(*called, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["results"] == [{"a": 0.0, "b": 1.0}]
    given.write_text("a: {attribute.slots: 1.5}\n")
    finished = hotbay(*called, cwd=tmp_path)
    assert finished.returncode == 78
    assert "endpoints.yaml:1:22" in finished.stderr
    assert "a count is a whole number" in finished.stderr


@pytest.fixture
def broken(packages: Any, tmp_path: Path, text: Any) -> Path:
    """A package whose scorer prints and raises."""
    score = 'print("about to fail"); raise LookupError("no table")'
    packages.make(tmp_path / "broken", text.scorer("a", score=score))
    (tmp_path / "endpoints.yaml").write_text(ENDPOINTS)
    return tmp_path


def test_what_a_plugin_raises_is_told_with_its_log(broken: Path) -> None:
    finished = hotbay("call", "sample-scorer", "--package", "broken", "--endpoints", "endpoints.yaml", cwd=broken)
    assert finished.returncode == 1, finished.stderr
    assert finished.stdout.startswith("error in every request: PLUGIN_ERROR: LookupError: no table")
    assert "about to fail" in finished.stderr


def test_a_type_that_is_not_there_is_told_before_anything_is_installed(broken: Path) -> None:
    finished = hotbay("call", "sample-score", "--package", "broken", cwd=broken)
    assert finished.returncode == 78
    assert "UNKNOWN_TYPE" in finished.stderr
    assert "Did you mean sample-scorer?" in finished.stderr


def test_a_call_without_endpoints_says_how_to_give_them(broken: Path) -> None:
    finished = hotbay("call", "sample-scorer", "--package", "broken", cwd=broken)
    assert finished.returncode == 78
    assert "Give --endpoints FILE" in finished.stderr


def test_a_plugin_that_cannot_be_imported_shows_its_log(packages: Any, tmp_path: Path, text: Any) -> None:
    packages.make(tmp_path / "broken", text.scorer("a", start="import no_such_module"))
    finished = hotbay("call", "sample-scorer", "--package", "broken", cwd=tmp_path)
    assert finished.returncode == 1
    assert "START_FAILED" in finished.stderr
    assert "no_such_module" in finished.stderr


@pytest.mark.parametrize("folder", ["empty", "plain"])
def test_a_folder_that_is_neither_package_nor_project_is_told_so(folder: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "file.txt").write_text("")
    finished = hotbay("call", "x", "--package", folder, cwd=tmp_path)
    assert finished.returncode == 78
    assert "neither a package nor a project" in finished.stderr


def test_p16_new_refuses_a_hostile_name_and_writes_nothing(tmp_path: Path) -> None:
    finished = hotbay("new", "../x", cwd=tmp_path)
    assert finished.returncode == 78
    assert "INVALID_NAME" in finished.stderr
    assert list(tmp_path.rglob("*")) == []


def test_a_project_without_the_index_says_what_to_do(tmp_path: Path) -> None:
    environment = {
        "UV_INDEX_URL": "http://127.0.0.1:9/",
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_HTTP_RETRIES": "0",
    }
    finished = subprocess.run(
        [HOTBAY, "new", "mine"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert finished.returncode == 0, finished.stderr
    assert "hotbay deps mine" in finished.stderr
    assert (tmp_path / "mine" / "pyproject.toml").is_file()
    assert not (tmp_path / "mine" / "requirements.lock").exists()


def test_conformance_of_a_command_that_is_not_there_bails_out(tmp_path: Path) -> None:
    finished = hotbay("conformance", "--", "./nothing", cwd=tmp_path)
    assert finished.returncode == 78
    assert finished.stdout.startswith("Bail out! ")


def test_conformance_fails_for_a_command_that_does_not_speak(tmp_path: Path) -> None:
    finished = hotbay("conformance", "--rule", "start.hello", "--", "true", cwd=tmp_path)
    assert finished.returncode == 1
    assert "not ok 1 - start.hello" in finished.stdout
