"""Plugins that mean harm, and what else lies in the way: requests are answered, others go on, the status says what it was."""

import os
import signal

import orjson
import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(60)]

QUICK = (
    "bindings: {sample: {deadline: 5s}}\npackages: [{id: sample, ready: 5s}]\n"
    "supervise: {restart: {first: 20ms, max: 20ms}, budget: {failures: 3}}\n"
)
# Writes frames of its own to the host's descriptors, past the SDK.
FRAMES = """
import msgpack, struct, threading
CALL_IN, CALL_OUT, CONTROL = map(int, os.environ["HOTBAY_CHANNEL"].split(","))

def frame(kind, stream, body):
    body = msgpack.packb(body)
    return struct.pack(">BBBBII", 0xF5, kind, 0, 1, stream, len(body)) + body

def flood(fd, data):
    while True:
        os.write(fd, data)
"""
SITE = "import hotbay_sdk, shutil\nSITE = os.path.dirname(os.path.dirname(hotbay_sdk.__file__))\n"
FLOODS = {
    "ping": ("CONTROL", "frame(13, 0, 1)"),
    "event among the answers": ("CALL_OUT", "frame(16, 0, [50, 0, None, None, 0, 0, 0])"),
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_flood_of_frames_that_nobody_asked_for_ends_the_plugin(host, text, packages, tmp_path, kind):
    """Before it was cut off, such a plugin took all of the host's loop: every request waited for 0.3 s and more."""
    fd, frame = FLOODS[kind]
    init = f"threading.Thread(target=flood, args=({fd}, {frame} * 200), daemon=True).start()"
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", start=FRAMES, init=init))
    async with host(config=QUICK) as bay, bay.load(50) as load:
        await bay.wait_for(lambda: bay.plugin()["phase"] == "disabled")
        await load.more(20)
        assert bay.error()["code"] == "PROTOCOL_VIOLATION"
        assert "floods its" in bay.error()["message"]
        assert bay.plugin_pids() == set()
    assert load.failed == []


async def test_plugin_cannot_say_that_it_was_killed_from_outside(host, text, packages, tmp_path):
    """A kill from outside counts to no budget: claimed by the plugin, it would be restarted for ever."""
    claim = f"{{'code': 'PLUGIN_ERROR', 'message': 'oops', 'details': {{'signal': {int(signal.SIGKILL)}}}}}"
    score = f"os.write(CONTROL, frame(8, 0, {claim})); time.sleep(30)"
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", start=FRAMES, score=score))
    async with host(config=QUICK) as bay, bay.load(20) as load:
        await bay.wait_for(lambda: bay.plugin()["phase"] == "disabled")
    assert load.failed == []


async def test_plugin_that_removed_its_environment_is_restarted_in_a_new_one(host, text, packages, tmp_path):
    marker = tmp_path / "removed"
    score = f"if not os.path.exists({str(marker)!r}): open({str(marker)!r}, 'w'); shutil.rmtree(SITE); os._exit(5)"
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", start=SITE, score=score))
    async with host(config=QUICK) as bay:
        first = bay.live()
        assert (await bay.client.chat()).status == 200
        await bay.wait_for(lambda: bay.live()["generation"] > first["generation"] and bay.live()["pid"])
        assert (await bay.client.chat()).text == "v1"
        assert bay.plugin()["restarts"] == 1


async def test_hostile_names_reach_no_terminal_and_the_page_stays_short(host, text, packages, tmp_path):
    ready = "{'types': [{'type': chr(27) + '[2J' + chr(0x9b) + 'x' * 200, 'points': ['score']}] * 200, 'sdk': ''}"
    start = f"{FRAMES}os.write(CONTROL, frame(5, 0, {ready}))"
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", start=start))
    async with host(config=QUICK) as bay:
        assert bay.error()["code"] == "INVALID_PACKAGE"
        assert len(bay.error()["message"]) < 2000
        page = orjson.dumps(bay.status()).decode()
        assert "\\x1b[2J" in orjson.loads(page)["plugins"][0]["last_error"]["message"]
        assert page.isprintable()


async def test_folder_whose_name_is_no_unicode_does_not_end_the_host(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    (tmp_path / "packages" / os.fsdecode(b"bad\xff\x1b[2J")).mkdir()
    async with host(config=QUICK) as bay:
        # The watch has begun when what comes now is found.
        bay.publish(text.scorer("v2"), rev=2)
        await bay.rev_is_live(2)
        assert (await bay.client.chat()).text == "v2"
        assert "bad\\udcff\\x1b[2J: FETCH_FAILED: its name is no UTF-8" in bay.status()["problems"][0]


async def test_state_directory_in_trouble_is_waited_out(
    host, text, packages, tmp_path, state_dir, environments, caplog
):
    """However long: more attempts than the budget allows a faulty package."""
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    (state_dir / "environments").unlink()
    (state_dir / "environments").write_bytes(b"")
    async with host(config=QUICK) as bay:
        assert (await bay.client.chat()).status == 200
        assert bay.error()["code"] == "RESOURCE_EXHAUSTED"
        assert "cannot be staged below" in bay.error()["message"]
        await bay.wait_for(lambda: caplog.text.count("candidate_failed") > 5)
        (state_dir / "environments").unlink()
        (state_dir / "environments").symlink_to(environments)
        await bay.rev_is_live(1)
        assert (await bay.client.chat()).text == "v1"
