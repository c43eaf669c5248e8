"""`hotbay dev` as an author uses it: an edit is live, a broken one is told with file and line while the one before answers."""

import json
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hotbay.authoring.new_project import create_project

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(180)]

HOTBAY = Path(sys.executable).with_name("hotbay")
WAIT_S = 90.0
"""The first environment is built, and packing may use the package index."""

PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{name: mine, type: mine-scorer}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: mine, weight: 1}]}]
"""
MODULE = '''"""Says which version it is."""

from hotbay_sdk import Context, Endpoint, Plugin, Request, Scorer
{at_import}
plugin = Plugin("mine")


@plugin.type("mine-scorer")
class MineScorer(Scorer):
    def score(self, request: Request, endpoint: Endpoint) -> float:
        self.context.logger.info("version {version}")
        {at_call}
        return 0.5
'''


class Dev:
    """One running `hotbay dev -o json`; its pages are read by a thread of their own."""

    def __init__(self, project: Path, home: Path, *options: str) -> None:
        self.module = project / "mine" / "__init__.py"
        self.process = subprocess.Popen(
            # By env(1), which becomes the command: all else of the environment is as it is here.
            ["/usr/bin/env", f"TMPDIR={home}", str(HOTBAY), "dev", str(project), "-o", "json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.url = ""
        self.pages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.pages.put(json.loads(line) if line.startswith("{") else {"event": "text", "line": line})
        self.pages.put({"event": "end"})

    def until(self, *events: str, holding: str = "") -> dict[str, Any]:
        """The next page with one of these words that has this text in it."""
        seen, end_s = [], time.monotonic() + WAIT_S
        while (left_s := end_s - time.monotonic()) > 0:
            try:
                page = self.pages.get(timeout=left_s)
            except queue.Empty:
                break
            if page["event"] in events and holding in json.dumps(page):
                return page
            seen.append(page)
            if page["event"] == "end":
                break
        pytest.fail(f"no {events} {holding!r} among {seen}")

    def save(self, version: str, *, at_import: str = "", at_call: str = "") -> None:
        self.module.write_text(MODULE.format(version=version, at_import=at_import, at_call=at_call))

    def line_of(self, text: str) -> int:
        lines = self.module.read_text().splitlines()
        return next(number for number, line in enumerate(lines, start=1) if text in line)

    def stop(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def ask(url: str) -> int:
    body = json.dumps({"model": "sim", "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return int(answer.status)


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found |= {int(child), *descendants(int(child))}
    return found


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """One for all tests, which begin with a save of their own; at the end it leaves nothing behind."""
    folder = tmp_path_factory.mktemp("dev")
    project = create_project("mine", "scorer", into=folder, publisher="me").directory
    picker, home = folder / "picker.yaml", folder / "home"
    picker.write_text(PICKER)
    home.mkdir()
    (project / "mine" / "__init__.py").write_text(MODULE.format(version="zero", at_import="", at_call=""))
    running = Dev(project, home, "--config-file", str(picker), "--servers", "2")
    try:
        running.url = running.until("serving")["url"]
        yield running
        children = descendants(running.process.pid)
        assert children
        assert running.stop(signal.SIGINT) == 0
        assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    finally:
        if running.process.poll() is None:
            running.stop(signal.SIGTERM)
    assert list(home.iterdir()) == []


def test_an_edit_is_live_and_a_broken_one_leaves_the_one_before(dev: Dev) -> None:
    dev.save("two")
    live = dev.until("live", "refused")
    assert (live["event"], live["files"], live["built"]) == ("live", ["mine/__init__.py"], False)
    assert ask(dev.url) == 200
    dev.until("output", holding="version two")

    dev.save("three", at_import="import not_there")
    refused = dev.until("live", "refused")
    assert refused["event"] == "refused"
    assert refused["place"] == f"{dev.module}:{dev.line_of('import not_there')}"
    assert "ModuleNotFoundError" in refused["traceback"]
    assert refused["generation"] == live["generation"]
    assert ask(dev.url) == 200
    dev.until("output", holding="version two")

    # What does not parse is told without starting anything.
    dev.save("three", at_call="return (")
    refused = dev.until("live", "refused")
    assert (refused["event"], refused["place"]) == ("refused", f"{dev.module}:{dev.line_of('return (')}")

    # The control: the same version without what broke it.
    dev.save("three")
    assert dev.until("live", "refused")["event"] == "live"
    assert ask(dev.url) == 200
    dev.until("output", holding="version three")


def test_what_raises_at_a_request_is_told_with_its_line(dev: Dev) -> None:
    dev.save("four", at_call="raise LookupError('at a request')")
    assert dev.until("live", "refused")["event"] == "live"
    assert ask(dev.url) == 200
    output = dev.until("output", holding="at a request")
    assert output["place"] == f"{dev.module}:{dev.line_of('raise LookupError')}"


def test_a_version_that_crashes_makes_way_for_the_one_before(dev: Dev) -> None:
    dev.save("five")
    assert dev.until("live", "refused")["event"] == "live"
    dev.save("six", at_call="import os; os._exit(3)")
    crashing = dev.until("live", "refused")
    assert crashing["event"] == "live"
    ask(dev.url)
    assert re.search(r"exit(ed)? .*3", dev.until("crashed")["message"])
    # One that was live before is run again, with a process of its own.
    assert dev.until("back")["generation"] > crashing["generation"]
    assert ask(dev.url) == 200
    dev.until("output", holding="version five")


def test_what_only_a_build_can_tell_is_built_and_what_none_reads_changes_nothing(dev: Dev) -> None:
    dev.save("seven")
    assert dev.until("live", "refused")["event"] == "live"
    (dev.module.parents[1] / "README.md").write_text("other words")
    assert dev.until("live", "refused", "unchanged")["event"] == "unchanged"
    (dev.module.parent / "more.py").write_text("LIMIT = 8")
    assert dev.until("live", "refused")["built"] is True
