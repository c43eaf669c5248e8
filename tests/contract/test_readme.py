"""The README's plugin is a plugin: its code runs, and its commands make a package that a host runs."""

import http.client
import json
import re
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hotbay.config.host_config import load_host_config
from hotbay.packages.layout import read_layout
from hotbay.packages.project import parse_project
from hotbay_sdk import Plugin

README = (Path(__file__).parents[2] / "README.md").read_text()
MAX_LINES = 150
COMMAND = [sys.executable, "-m", "hotbay.cli"]
# Build backend and wheels come from the index; the host starts a process and answers one request.
PACK_TIMEOUT_S = 120
HOST_TIMEOUT_S = 30

HOST_CONFIG = """
apiVersion: hotbay/v1alpha1
kind: HostConfig
state_dir: state
listen: {{http: "127.0.0.1:0"}}
scheduling:
  text: |
    apiVersion: llm-d.ai/v1alpha1
    kind: EndpointPickerConfig
    plugins:
      - {{name: queue, type: short-queue-scorer, parameters: {{soft_limit: 4}}}}
    schedulingProfiles:
      - {{name: default, plugins: [{{pluginRef: queue}}]}}
endpoints:
  - {{url: "http://127.0.0.1:{port}"}}
sources:
  - {{name: mine, directory: packages}}
logging: {{format: text}}
"""


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return text


@pytest.fixture
def names() -> dict[str, object]:
    """What the README's module defines."""
    # Dataclasses look their module up by name.
    defined: dict[str, object] = {"__name__": "builtins"}
    exec(compile(block("python"), "README.md", "exec"), defined)
    return defined


def test_readme_stays_short():
    assert len(README.splitlines()) <= MAX_LINES


def test_readme_host_config_is_read_and_stays_the_least(tmp_path: Path):
    text = block("yaml")
    config = load_host_config(text, file="README.md", base_directory=tmp_path, environment={}, is_root=False)
    assert [str(endpoint.url) for endpoint in config.endpoints] == ["http://127.0.0.1:8000"]
    assert len(text.splitlines()) <= 5


def test_readme_plugin_defines_what_its_project_file_names(names: dict[str, object]):
    project = parse_project(block("toml"), file="README.md")
    plugin = names[project.entrypoint.partition(":")[2]]

    assert isinstance(plugin, Plugin)
    assert plugin.name == project.id
    assert tomllib.loads(block("toml"))["project"]["dependencies"] == ["hotbay-sdk"]


def test_readme_plugin_is_at_most_thirty_lines_of_code():
    assert len([line for line in block("python").splitlines() if line.strip()]) <= 30


def test_readme_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README)

    assert [link for link in links if not (Path(__file__).parents[2] / link).exists()] == []


def pack_lines() -> list[list[str]]:
    """The README's commands that make the package."""
    lines = re.findall(r"^\$ (hotbay (?:deps|pack) .*)$", README, re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which somebody did what the README says."""
    folder = tmp_path_factory.mktemp("readme")
    module = folder / "my-scorers" / "my_scorers" / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text(block("python"))
    (folder / "my-scorers" / "pyproject.toml").write_text(block("toml"))
    for line in pack_lines():
        subprocess.run([*COMMAND, *line], cwd=folder, check=True, timeout=PACK_TIMEOUT_S)
    return folder


@pytest.mark.process
@pytest.mark.timeout(2 * PACK_TIMEOUT_S)
def test_readme_commands_make_the_package(workplace: Path):
    assert [line[0] for line in pack_lines()] == ["deps", "pack"]
    (manifest,) = read_layout(workplace / "packages" / "my-scorers")
    assert (manifest.id, manifest.types) == ("my-scorers", ("short-queue-scorer",))
    left = {path.name for path in (workplace / "my-scorers").iterdir()}
    assert left == {"my_scorers", "pyproject.toml", "requirements.lock"}


class ModelServer(BaseHTTPRequestHandler):
    """Answers every completion; has no figures."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(404, b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.answer(200, b'{"choices": []}')

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def model_port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), ModelServer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join(HOST_TIMEOUT_S)
    server.server_close()


@pytest.fixture
def run_host(workplace: Path) -> Iterator[Callable[[str], tuple[int, list[str]]]]:
    """Starts a host in the workplace; returns its port, and what it said until it was ready."""
    running: list[subprocess.Popen[str]] = []

    def run(config: str) -> tuple[int, list[str]]:
        (workplace / "host.yaml").write_text(config)
        process = subprocess.Popen(
            [*COMMAND, "run", "-c", "host.yaml"], cwd=workplace, stderr=subprocess.PIPE, text=True
        )
        running.append(process)
        assert process.stderr is not None
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if re.search(r"\bready plugins=", line):
                break
        served = re.search(r"serves on http://127\.0\.0\.1:(\d+)", "".join(said))
        assert served is not None, "".join(said)
        return int(served[1]), said

    yield run
    for process in running:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=HOST_TIMEOUT_S)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(2 * PACK_TIMEOUT_S + 2 * HOST_TIMEOUT_S)
def test_readme_package_runs_in_a_host_that_answers(model_port: int, run_host: Callable[[str], tuple[int, list[str]]]):
    port, said = run_host(HOST_CONFIG.format(port=model_port))
    assert "ready plugins=1" in said[-1], "".join(said)

    client = http.client.HTTPConnection("127.0.0.1", port, timeout=HOST_TIMEOUT_S)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]})
    client.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    answer = client.getresponse()
    assert (answer.status, answer.read()) == (200, b'{"choices": []}')
    client.request("GET", "/metrics")
    page = client.getresponse().read().decode()
    client.close()
    assert "hotbay_degraded_total{" not in page
    assert "hotbay_plugin_errors_total{" not in page
