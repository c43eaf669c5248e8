"""`logging.access`: a line for each request, or none, beside what happens to the host."""

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

HOST = (
    "apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: state\nsources: [{name: bundled, fetch: 'off'}]\n"
    "listen: {http: '127.0.0.1:0'}\nlogging: {format: text, access: ACCESS}\n"
)
PICKER = "{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, plugins: [{type: max-score-picker}]}"


@pytest.mark.parametrize("access", ["true", "false"])
def test_request_lines_come_as_configured(tmp_path, access):
    (tmp_path / "host.yaml").write_text(HOST.replace("ACCESS", access))
    command = [Path(sys.executable).with_name("hotbay"), "run", "-c", tmp_path / "host.yaml", "--config-text", PICKER]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = next(line for line in process.stderr if line.startswith("hotbay serves on "))
            with urllib.request.urlopen(line.split()[-1] + "/health", timeout=10):
                pass
            process.send_signal(signal.SIGTERM)
            said = process.stderr.read()
        finally:
            process.kill()
    assert " serving: draining" in said
    assert (" access: request id=" in said) is (access == "true")
