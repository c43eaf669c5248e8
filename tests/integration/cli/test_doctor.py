"""`hotbay doctor` on machines that lack something, beside a host and without one."""

import fcntl
import json
import os
import shutil
from collections import namedtuple

import anyio
import pytest
from hotbay.cli.doctor import Found, diagnose
from hotbay.store.world.engine import Put
from hotbay.store.world.records import Floor
from hotbay.store.world.sqlite import SqliteWorld

HEAD = "apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: .\nsources: [{name: mine, directory: .}]\n"
Usage = namedtuple("Usage", ["total", "used", "free"])


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "host.yaml"
    file.write_text(HEAD)
    return file


def checks(config):
    return {check.check: check for check in diagnose(config)}


def failed(config):
    return {check.check for check in diagnose(config) if check.found is Found.FAIL}


def test_fresh_machine_has_nothing_to_repair(hotbay, config):
    ended = hotbay("doctor", "-c", config)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0].split() == ["check", "found", "what"]
    assert any(line.startswith("host ") and "no host runs" in line for line in lines)
    assert "host: what to do: start it with `hotbay run`" in lines
    assert sorted(path.name for path in config.parent.iterdir()) == ["host.yaml"]


def test_answer_as_json(hotbay, config):
    page = json.loads(hotbay("doctor", "-c", config, "-o", "json").out)
    assert {row["check"] for row in page["checks"]} >= {"python", "uv", "state directory", "disk", "world", "host"}


def test_bad_configuration_is_all_that_can_be_said(hotbay, config):
    config.write_text(HEAD + "swpa: {}\n")
    ended = hotbay("doctor", "-c", config, "-o", "json")
    assert ended.code == 1
    last = json.loads(ended.out)["checks"][-1]
    assert (last["check"], last["found"]) == ("configuration", "fail")
    assert "host.yaml:5:1" in last["what"]


def test_missing_tool_interpreter_and_packages_are_failures(config, monkeypatch, tmp_path):
    config.write_text(
        HEAD.replace("{name: mine, directory: .}", "{name: bundled}")
        + "hosts: [{platform: python-cp311-linux-x86_64, interpreter: nosuch}, {platform: python-cp312-linux-x86_64}]\n"
    )
    monkeypatch.setattr("hotbay.cli.doctor.uv_binary", lambda: str(tmp_path / "nosuch"))
    monkeypatch.setattr("hotbay.cli.doctor.bundled_folder", lambda part: tmp_path / "nosuch")
    assert failed(config) == {"uv", "interpreter", "bundled packages"}
    monkeypatch.setattr("hotbay.cli.doctor.uv_binary", lambda: shutil.which("false"))
    assert "ended with 1" in checks(config)["uv"].what


def test_folder_of_somebody_else_is_a_failure(config, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert failed(config) == {"state directory"}


def test_state_directory_that_is_not_there_yet_will_be_made(config):
    config.write_text(HEAD.replace("state_dir: .", "state_dir: a/b"))
    found = checks(config)
    assert "will be made" in found["state directory"].what
    assert not failed(config)


@pytest.mark.parametrize(("free", "fails"), [(49, True), (50, False)])
def test_disk_is_short_below_a_share(config, monkeypatch, free, fails):
    monkeypatch.setattr("hotbay.cli.doctor.shutil.disk_usage", lambda path: Usage(1000, 1000 - free, free))
    assert failed(config) == ({"disk"} if fails else set())


def test_world_is_looked_at_and_left_as_it_is(config):
    file = config.parent / "world.db"

    async def write():
        world = await SqliteWorld.open(file)
        await world.transact(lambda view: [Put(Floor("p", 3))])
        await world.close()

    anyio.run(write)
    before = {path.name: path.read_bytes() for path in config.parent.iterdir()}
    assert "1 records at revision 1" in checks(config)["world"].what
    assert {path.name: path.read_bytes() for path in config.parent.iterdir()} == before
    file.write_bytes(b"damaged" * 1000)
    found = checks(config)["world"]
    assert (found.found, bool(found.hint)) == (Found.FAIL, True)


def test_world_in_memory_is_no_file(config):
    config.write_text(HEAD + "world: {engine: memory}\n")
    assert checks(config)["world"].found is Found.NOTE


def test_store_is_counted(config):
    store = config.parent / "store"
    store.mkdir()
    (store / "a").write_bytes(b"x" * 2048)
    environment = config.parent / "environments" / "ab"
    environment.mkdir(parents=True)
    (environment / "b").write_bytes(b"x" * 3072)
    what = checks(config)["store"].what
    assert what == f"5.0 KiB (packages 2.0 KiB, environments 3.0 KiB) below {config.parent}"


def test_running_host_answers_or_is_a_failure(config, bay):
    lock = os.open(config.parent / "lock", os.O_RDWR | os.O_CREAT)
    os.write(lock, str(os.getpid()).encode())
    try:
        assert "no host runs" in checks(config)["host"].what
        fcntl.flock(lock, fcntl.LOCK_EX)
        (config.parent / "world.db").write_bytes(b"")
        assert checks(config)["world"].what.endswith(f"is in use by the host with pid {os.getpid()}")
        found = checks(config)["host"]
        assert (found.found, found.what) == (Found.OK, f"pid {os.getpid()} answers at {bay.socket}, ready")
        bay.socket.rename(bay.socket.with_name("moved"))
        found = checks(config)["host"]
        assert found.found is Found.FAIL
        assert f"the host with pid {os.getpid()} does not answer" in found.what
        bay.socket.with_name("moved").rename(bay.socket)
    finally:
        os.close(lock)
