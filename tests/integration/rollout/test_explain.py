"""What an operator can look into of a whole host: why requests went where they went, what plugins know, and who is not ready."""

import anyio.to_thread
import orjson
import pytest
from hotbay.cli.admin_client import AdminClient
from hotbay.errors import InputError

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(120)]

PATIENT = "bindings: {sample: {deadline: 5s}}\n"
SOURCE = """
import pathlib
from hotbay_sdk import Plugin, Scorer, StateDumper

plugin = Plugin("sample")

@plugin.type("sample-scorer", parameters=lambda given: pathlib.Path(given["switch"]))
class Prefers(Scorer, StateDumper):
    def __init__(self, context, switch):
        self.calls = 0
        self.switch = switch

    def check_ready(self):
        return not self.switch.exists()

    def dump_state(self):
        if self.switch.exists():
            raise ValueError("not now")
        return {"calls": self.calls}

    def score(self, request, endpoint):
        self.calls += 1
        if self.switch.exists():
            raise ValueError("nor this")
        return 1.0 if endpoint.id == "default/v2" else 0.25
"""


@pytest.fixture
def switch(tmp_path):
    return tmp_path / "switch"


@pytest.fixture
def sample(host, packages, text, tmp_path, switch):
    """sample(config): a host with the plugin above."""

    def start(config="", **how):
        packages.make(tmp_path / "packages" / "sample-1", SOURCE)
        picker = text.picker.replace("-scorer}", f"-scorer, parameters: {{switch: '{switch}'}}}}")
        return host(picker, config=config if "bindings" in config else PATIENT + config, **how)

    return start


@pytest.fixture
def ask(state_dir):
    """ask("/explain/x"): what the admin socket says."""
    return lambda target: anyio.to_thread.run_sync(AdminClient(state_dir / "admin.sock").get, target)


async def send(bay, line, headers=""):
    """Head and body of an answer."""
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]})
    async with await anyio.connect_tcp(*bay.serving.address) as stream:
        await stream.send(
            f"{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        received = b""
        with anyio.fail_after(30):
            while True:
                try:
                    received += await stream.receive()
                except anyio.EndOfStream:
                    break
    head, _, content = received.partition(b"\r\n\r\n")
    lines = (one.partition(b": ") for one in head.split(b"\r\n")[1:])
    return {name.decode().lower(): value.decode() for name, _, value in lines}, content


CHAT = "POST /v1/chat/completions"


async def test_request_is_explained_by_the_id_of_its_answer(sample, ask, servers):
    async with sample() as bay:
        head, _ = await send(bay, CHAT, "x-request-id: team/7\r\nx-hotbay-explain: 1\r\n")
        assert head["x-request-id"] == "team/7"
        assert "x-hotbay-explain" not in head, "it is off where nobody allowed it"
        page = await ask("/explain/team%2F7")
        [told] = page["decisions"]
        assert told["decision"]["picked"] == ["default/v2"]
        [scored] = [step for step in told["steps"] if step["point"] == "score"]
        assert (scored["refs"], scored["plugin"], scored["error"]) == (["sample"], "sample", None)
        assert scored["scores"]["default/v2"] == 1.0
        assert told["profiles"][0]["totals"]["default/v2"] == pytest.approx(1.0)
        assert told["us"]["total"] >= told["us"]["calls"] > 0
        assert (await ask("/explain?last=1"))["decisions"][0]["request"] == "team/7"
        with pytest.raises(InputError, match="1 decision is kept, the oldest is") as caught:
            await ask("/explain/other")
        assert caught.value.code == "NOT_FOUND"


async def test_refusal_says_why_too(sample, switch, servers):
    strict = "bindings: {sample: {deadline: 5s, on_failure: fail_closed}}\n"
    async with sample(strict + "explain: {header: true}\n") as bay:
        switch.touch()
        for line in (CHAT, "POST /pick"):
            head, _ = await send(bay, line, "x-hotbay-explain: 1\r\n")
            assert head["x-hotbay-reason"] == "plugin-unavailable"
            told = orjson.loads(head["x-hotbay-explain"])
            assert (told["status"], told["reason"]) == (503, "plugin-unavailable")
            assert told["degraded"] == [["sample", "PLUGIN_ERROR", "fail_closed"]]


async def test_header_says_why_where_it_is_allowed_for_proxy_and_picks(sample, servers):
    async with sample("explain: {header: true, keep: 10}\n") as bay:
        head, _ = await send(bay, CHAT)
        assert "x-hotbay-explain" not in head
        for line in (CHAT, "POST /pick"):
            head, _ = await send(bay, line, "x-hotbay-explain: 1\r\n")
            told = orjson.loads(head["x-hotbay-explain"])
            assert told["picked"] == ["default/v2"]
            assert told["profiles"][0]["scores"]["default/v2"] == [1.0, 1.0]
        await bay.host.adopt(bay.configure(PATIENT + "explain: {header: false, keep: 1}\n"), bay.picker)
        head, _ = await send(bay, CHAT, "x-hotbay-explain: 1\r\n")
        assert "x-hotbay-explain" not in head
        assert len(bay.host._router.decisions) == 1, "bounds act at once"


async def test_states_are_dumped_and_one_that_raises_says_so(sample, ask, switch, servers):
    async with sample() as bay:
        await send(bay, CHAT)
        page = await ask("/debug/plugins/state")
        [row] = [row for row in page["plugins"] if row["ref"] == "sample"]
        assert row["state"]["calls"] >= 1
        assert page["host"]["in-flight"]["total"] == 0
        assert page["host"]["decisions"]["kept"] >= 1
        switch.touch()
        page = await ask("/debug/plugins/state/sample")
        assert page["plugins"][0]["error"]["code"] == "PLUGIN_ERROR"
        with pytest.raises(InputError, match="sample"):
            await ask("/debug/plugins/state/sampel")


async def test_plugin_that_is_not_ready_is_named_by_readyz_until_it_is(sample, switch, servers):
    switch.touch()
    async with sample(ready=False) as bay:
        await bay.rev_is_live(1)
        reason = "plugin sample is not ready: sample"
        await bay.wait_for(lambda: bay.status()["not_ready"] == [reason])
        _, content = await send(bay, "GET /readyz")
        assert orjson.loads(content) == {"ready": False, "reasons": [reason]}
        head, _ = await send(bay, CHAT)
        assert "x-hotbay-reason" not in head, "requests go on"
        switch.unlink()
        await bay.ready()
