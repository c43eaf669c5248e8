"""The texts of a first project that stands in the data layer. `$name` is filled in by `scaffold`."""

from typing import Final

from hotbay.authoring.templates import Body

__all__ = ["DATA_BODIES"]

_PAGE: Final = """\
# HELP vllm:num_requests_waiting Requests that wait.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="a"} 3
vllm:num_requests_waiting{model_name="b"} 2
"""

_EXTRACTOR: Final = Body(
    code='''\
"""Sums up the queues of all models of an endpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hotbay_sdk import Context, Extractor, ParameterError, Plugin

plugin = Plugin("$id")

WAITING = "vllm:num_requests_waiting"


@dataclass(frozen=True)
class Parameters:
    """What an operator may set."""

    at_most: float = 1000.0

    def __post_init__(self) -> None:
        if self.at_most <= 0:
            raise ParameterError("at_most", "above 0")


@plugin.type(
    "$type",
    payload="metrics",
    families=[WAITING],
    attributes={"queue_depth": "f32"},
    default_source="metrics-data-source",
    parameters=Parameters,
)
class $cls(Extractor):
    """Makes the attribute `queue_depth`, which scorers read as `attribute.queue_depth`."""

    def __init__(self, context: Context, parameters: Parameters) -> None:
        self._at_most = parameters.at_most

    def extract(self, payload: Mapping[str, Any], endpoint: Mapping[str, Any]) -> Mapping[str, object]:
        """Read one page; None, which takes the attribute away, where it says nothing of queues."""
        samples = payload.get(WAITING)
        if not samples:
            return {"queue_depth": None}
        return {"queue_depth": min(self._at_most, sum(value for _, value in samples))}
''',
    tests="""\

WAITING = "vllm:num_requests_waiting"


def test_queues_of_all_models_are_summed_up() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type", {"at_most": 10})
        page = {WAITING: [[{"model_name": "a"}, 3.0], [{"model_name": "b"}, 2.0]]}
        assert harness.extract("mine", page) == {"queue_depth": 5.0}
        assert harness.extract("mine", {WAITING: [[{}, 99.0]]}) == {"queue_depth": 10.0}


def test_a_page_without_queues_says_nothing() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type")
        assert harness.extract("mine", {}) == {"queue_depth": None}
""",
    does="Sums up the queues of all models of an endpoint.",
    reads="`vllm:num_requests_waiting` of its metrics page; by default behind `metrics-data-source`.",
    parameters="`at_most` (default 1000): longer queues count as this long.",
    call="--payload page.txt",
    files={"page.txt": _PAGE},
    sees_requests=False,
)

_DISCOVERY: Final = Body(
    code='''\
"""Finds endpoints: one file for each, named NAME.txt, which says ADDRESS:PORT."""

from dataclasses import dataclass
from pathlib import Path

from hotbay_sdk import Context, Discovery, DiscoveryNotifier, ParameterError, Plugin

plugin = Plugin("$id")


@dataclass(frozen=True)
class Parameters:
    """What an operator sets: the folder, and how often it is looked at, in seconds."""

    folder: str
    interval_s: float = 1.0

    def __post_init__(self) -> None:
        if not Path(self.folder).is_absolute():
            raise ParameterError("folder", f"expected an absolute path, found {self.folder!r}")
        if not 0.05 <= self.interval_s <= 3600:
            raise ParameterError("interval_s", f"expected 0.05 to 3600 seconds, found {self.interval_s:g}")


@plugin.type("$type", parameters=Parameters)
class $cls(Discovery):
    """Looks at the folder from time to time, and tells what differs from the last look.

    A folder that cannot be listed ends the run with an error: the host says so in its status, keeps what was told, and
    begins another run. To take it for an empty one would take every endpoint away.
    """

    def __init__(self, context: Context, parameters: Parameters) -> None:
        self._context = context
        self._folder = Path(parameters.folder)
        self._interval_s = parameters.interval_s

    def discover(self, notifier: DiscoveryNotifier) -> None:
        """Tell all endpoints, then that this was all, then what changes, until the run is over."""
        known: dict[str, str] = {}
        while True:
            found = self._look(known)
            for name, text in found.items():
                if known.get(name) != text:
                    address, _, port = text.rpartition(":")
                    notifier.upsert({"id": f"default/{name}", "address": address.strip("[]"), "port": int(port)})
            for name in known.keys() - found.keys():
                notifier.delete(f"default/{name}")
            known = found
            notifier.ready()
            if notifier.wait(self._interval_s):
                return

    def _look(self, known: dict[str, str]) -> dict[str, str]:
        """The texts by name; of a file that says something else, what it said before. Raises OSError, see above."""
        found: dict[str, str] = {}
        for path in sorted(self._folder.iterdir()):  # glob takes a folder that is not there for an empty one
            if path.suffix != ".txt":
                continue
            try:
                text = path.read_bytes()[:1000].decode("ascii").strip()
            except FileNotFoundError:
                continue  # it went since the folder was listed
            except (OSError, UnicodeDecodeError) as error:
                self._context.logger.warning("%s cannot be read: %s", path.name, error)
                text = ""
            if text.rpartition(":")[2].isdecimal():
                found[path.stem] = text
            elif path.stem in known:
                found[path.stem] = known[path.stem]
        return found
''',
    tests="""\


def test_files_that_come_and_go_are_endpoints_that_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("10.0.0.1:8000")
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type", {"folder": str(tmp_path)})
        told = harness.discover(
            "mine",
            [
                lambda: (tmp_path / "b.txt").write_text("[fd00::1]:8001"),
                (tmp_path / "a.txt").unlink,
            ],
        )
        assert told == [
            ["upsert", {"id": "default/a", "address": "10.0.0.1", "port": 8000}],
            ["ready"],
            ["upsert", {"id": "default/b", "address": "fd00::1", "port": 8001}],
            ["delete", "default/a"],
        ]


def test_a_file_that_is_half_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("10.0.0.1:8000")
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type", {"folder": str(tmp_path)})
        told = harness.discover("mine", [lambda: (tmp_path / "a.txt").write_text("10.0.0.1:")])
        assert told == [["upsert", {"id": "default/a", "address": "10.0.0.1", "port": 8000}], ["ready"]]


def test_files_that_cannot_be_read_stop_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\\xff\\xfe")
    (tmp_path / "b.txt").symlink_to("nowhere")
    (tmp_path / "c.txt").mkdir()
    (tmp_path / "d.txt").write_text("10.0.0.1:8000")
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type", {"folder": str(tmp_path)})
        told = harness.discover("mine", [])
        assert told == [["upsert", {"id": "default/d", "address": "10.0.0.1", "port": 8000}], ["ready"]]


def test_a_folder_that_is_not_there_is_an_error_and_takes_nothing_away(tmp_path: Path) -> None:
    folder = tmp_path / "servers"
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type", {"folder": str(folder)})
        with pytest.raises(PluginCallError, match="servers"):
            harness.discover("mine")
        folder.mkdir()
        assert harness.discover("mine") == [["ready"]]
        (folder / "a.txt").write_text("10.0.0.1:8000")
        with pytest.raises(PluginCallError, match="servers"):
            harness.discover("mine", [lambda: folder.rename(tmp_path / "gone")])
""",
    does="Finds endpoints: one file for each, named NAME.txt, which says ADDRESS:PORT.",
    reads="The files of a folder.",
    parameters="`folder`: an absolute path; one that cannot be listed is an error. `interval_s` (default 1): seconds from one look to the next.",
    call="--parameters parameters.yaml",
    files={"parameters.yaml": "folder: /tmp/endpoints\n", "conformance.yaml": "$type: {folder: /tmp/endpoints}\n"},
    before="$ mkdir -p /tmp/endpoints                   # of parameters.yaml and conformance.yaml\n",
    conformance=" --parameters conformance.yaml",
    test_imports="from pathlib import Path\n\nimport pytest\n",
    tools="PluginCallError, PluginHarness",
    sees_requests=False,
)

DATA_BODIES: Final = {"extractor": _EXTRACTOR, "discovery": _DISCOVERY}
