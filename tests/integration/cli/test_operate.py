"""The operator's commands: what they ask of the host, what they print, and which code they end with."""

import json
from pathlib import Path

import pytest
from hotbay.capabilities import CAPABILITIES
from hotbay.cli.operate import OPERATOR_COMMANDS
from hotbay.config.host_config import load_host_config
from hotbay.errors import CapacityError, InputError, PackageError, Problem

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("command", "call"),
    [
        ("apply", ("apply",)),
        ("pin standard@7", ("pin", "standard", 7, None)),
        (f"pin standard@{DIGEST}", ("pin", "standard", None, DIGEST)),
        ("unpin standard", ("unpin", "standard")),
        ("rollback standard", ("rollback", "standard")),
        ("enable standard", ("enable", "standard")),
        ("disable standard", ("disable", "standard", False)),
        ("disable standard --force", ("disable", "standard", True)),
        ("rollout promote standard", ("rollout", "standard", "promote")),
        ("quarantine clear standard", ("clear_quarantine", "standard")),
        (f"quarantine clear {DIGEST}", ("clear_quarantine", DIGEST)),
        ("grant standard net dns", ("grant", "standard", ("net", "dns"))),
        ("gc", ("gc", False)),
        ("gc --dry-run", ("gc", True)),
    ],
)
def test_order_reaches_the_host_and_its_answer_is_printed(bay, hotbay, command, call):
    ended = hotbay(*command.split(), "--socket", bay.socket)
    assert (ended.code, ended.out, ended.err) == (0, f"{call[0]} is done\n", "")
    assert bay.operations.calls == [call]
    as_json = hotbay(*command.split(), "--socket", bay.socket, "-o", "json")
    assert json.loads(as_json.out) == {"message": f"{call[0]} is done"}


def test_plan_says_what_changes_and_what_to_do(bay, hotbay):
    lines = hotbay("plan", "--socket", bay.socket).out.splitlines()
    assert lines[0] == "mode: lock"
    assert lines[1].split() == ["plugin", "action", "from", "to", "why"]
    assert lines[2].split("  ")[0] == "standard"
    assert "1.0.0 rev 1" in lines[2]
    assert "2.0.0 rev 2" in lines[2]
    assert lines[3] == "what to do: put it in force with `hotbay apply`"


def test_history_tells_when_and_why(bay, hotbay):
    out = hotbay("history", "standard", "--socket", bay.socket).out
    assert "2025-10-09 08:53:20Z" in out
    assert "rolled back: p99 61 ms > 3 x 12 ms" in out
    assert DIGEST[: len("sha256:") + 12] in out
    assert DIGEST not in out


def test_quarantine_names_the_digest_shortly_and_whole_in_json(bay, hotbay):
    out = hotbay("quarantine", "list", "--socket", bay.socket).out
    assert DIGEST[: len("sha256:") + 12] in out
    assert DIGEST not in out
    assert "CRASHED" in out
    assert DIGEST in hotbay("quarantine", "list", "--socket", bay.socket, "-o", "json").out


def test_empty_list_is_said(bay, hotbay):
    bay.operations.pages["quarantine"] = {"quarantine": []}
    assert hotbay("quarantine", "list", "--socket", bay.socket).out == "quarantine: none\n"


def test_status_shows_progress_reason_sources_and_store(bay, hotbay):
    out = hotbay("status", "--socket", bay.socket).out
    for part in (
        "standard is downloaded: 3.0 MiB of 12.0 MiB (25 %)",
        "standard: fail: slow calls over 36 ms 4.00%, of the live one 0.20%, allowed 1.00%",
        "bundled  watching",
        "store: 95.0 MiB of 100.0 MiB · 1.0 GiB free on its disk · nearly full: `hotbay gc`",
    ):
        assert part in out
    page = json.loads(hotbay("status", "--socket", bay.socket, "-o", "json").out)
    assert page == bay.operations.pages["status"]


def test_logs_are_lines_and_no_escape_sequence_of_others(bay, hotbay):
    ended = hotbay("logs", "standard", "--socket", bay.socket, "-n", "2")
    one = "2025-10-09 08:53:20Z rev 2 #7 pid 31 stderr: one"
    assert ended.out == f"{one}\ntwo \\x1b[2J\n"
    assert bay.operations.calls == [("logs", "standard", 2)]
    assert hotbay("logs", "standard", "-f", "--socket", bay.socket).out == f"{one}\ntwo \\x1b[2J\nthree\n"
    followed = hotbay("logs", "standard", "-f", "--socket", bay.socket, "-o", "json").out
    assert [json.loads(line) for line in followed.splitlines()][-1] == {"line": "three"}
    assert json.loads(hotbay("logs", "standard", "--socket", bay.socket, "-o", "json").out)["plugin"] == "standard"


def test_events_are_a_line_each(bay, hotbay):
    assert hotbay("events", "--socket", bay.socket).out == "2025-10-09 08:53:20Z cutover plugin=standard rev=2\n"
    assert json.loads(hotbay("events", "--socket", bay.socket, "-o", "json").out)["event"] == "cutover"


def test_lock_is_printed_or_written_whole(bay, hotbay, tmp_path):
    page = json.loads(hotbay("lock", "--socket", bay.socket).out)
    assert page["kind"] == "Lock"
    out = tmp_path / "hotbay.lock"
    ended = hotbay("lock", "--out", out, "--socket", bay.socket)
    assert (ended.code, ended.out) == (0, "")
    assert json.loads(out.read_text()) == page
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    refused = hotbay("lock", "--out", tmp_path / "nowhere" / "x", "--socket", bay.socket)
    assert refused.code == 78
    assert "name a file in a folder that you may write" in refused.err


def test_host_is_found_by_its_configuration(bay, hotbay, tmp_path):
    (tmp_path / "host.yaml").write_text("apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: .\n")
    assert hotbay("plan", "-c", tmp_path / "host.yaml").code == 0
    text = (
        "apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: /x\nlisten: {admin: 'unix:" + str(bay.socket) + "'}"
    )
    (tmp_path / "host.yaml").write_text(text)
    assert hotbay("plan", "-c", tmp_path / "host.yaml").code == 0
    missing = hotbay("plan", "-c", tmp_path / "nosuch.yaml")
    assert missing.code == 78
    assert "nosuch.yaml: CONFIG_INVALID: cannot be read" in missing.err


def test_host_is_found_where_it_is_by_default(bay, hotbay, monkeypatch):
    defaults = load_host_config("", file="-", base_directory=Path(), environment={"HOME": "/h"}, is_root=False)
    assert str(defaults.listen.admin) == "unix:admin.sock"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(bay.socket.parent))
    state = bay.socket.parent / "hotbay"
    state.mkdir()
    (state / "admin.sock").symlink_to(bay.socket)
    assert hotbay("plan").code == 0


def test_no_host_is_said_with_what_to_do(hotbay, tmp_path):
    ended = hotbay("status", "--socket", tmp_path / "admin.sock")
    assert (ended.code, ended.out) == (69, "")
    said = ended.err.splitlines()
    assert said[0].startswith("error: UNAVAILABLE: no host answers at ")
    assert "start a host with `hotbay run`" in said[1]
    assert "hotbay doctor" in said[1]
    as_json = hotbay("status", "--socket", tmp_path / "admin.sock", "-o", "json")
    assert (as_json.code, json.loads(as_json.err)["code"]) == (69, "UNAVAILABLE")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError([Problem("UNKNOWN_PLUGIN", "no plugin 'standrad'", hint="did you mean 'standard'?")]), 78),
        (PackageError("BELOW_FLOOR", "rev 1 is below the floor", hint="pin its digest"), 1),
        (CapacityError("UNAVAILABLE", "a rollout is under way", hint="wait"), 1),
    ],
)
def test_refusal_of_the_host_is_told_with_its_hint(bay, hotbay, error, code):
    bay.operations.fail = error
    ended = hotbay("rollback", "standrad", "--socket", bay.socket)
    assert ended.code == code
    assert error.code in ended.err
    assert error.hint in ended.err
    as_json = hotbay("rollback", "standrad", "--socket", bay.socket, "-o", "json")
    assert (as_json.code, json.loads(as_json.err)["hint"]) == (code, error.hint)


@pytest.mark.parametrize(
    "command",
    [
        "pin standard",
        "pin standard@",
        "pin @1",
        "pin standard@-1",
        "pin standard@1.0",
        f"pin standard@{2**64}",
        "pin standard@sha256:00",
        "unpin a/b",
        "rollback ..",
        "rollout stop standard",
        "quarantine clear sha256:00",
        "grant standard",
        "logs standard -n 10001",
        "logs standard -n -1",
    ],
)
def test_wrong_usage_asks_no_host(bay, hotbay, command):
    ended = hotbay(*command.split(), "--socket", bay.socket)
    assert ended.code == 2
    assert ended.err.startswith("Usage: hotbay ")
    assert bay.operations.calls == []


def test_grant_of_nothing_names_what_can_be_granted(bay, hotbay):
    ended = hotbay("grant", "standard", "--socket", bay.socket)
    assert ended.code == 2
    assert f"name at least one capability: {', '.join(CAPABILITIES)}" in " ".join(ended.err.split())
    assert bay.operations.calls == []


def test_every_command_has_help_with_its_codes(hotbay):
    for command in OPERATOR_COMMANDS:
        name = str(command.name)
        out = hotbay(*([name, "list"] if name == "quarantine" else [name]), "--help").out
        assert "69" in out
        assert "--socket" in out
