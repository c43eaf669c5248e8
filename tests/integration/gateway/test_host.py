"""Models and parsers of a whole host: read at the start, followed, and changed by a reload. No plugin runs in it."""

from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import orjson
import pytest
from hotbay.app import Host
from hotbay.config.host_config import load_host_config
from hotbay.config.picker_config import load_picker_config
from hotbay.errors import InputError

pytestmark = pytest.mark.anyio
WAIT_S = 30.0
PICKER = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: max-score-picker}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: max-score-picker}]}]
"""
PARSERS = "requestHandler: {parsers: [{pluginRef: openai-parser}]}\n"
MODELS = """\
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {name: one}
spec: {rules: [{matches: [{model: {value: m}}], targets: [{modelRewrite: TARGET}]}]}
"""


async def echo(request, stream):
    if request.body:
        await stream.json({"model": request.json().get("model")})
    else:
        await stream.json({}, "404 Not Found")
    return True


@pytest.fixture
def anyio_backend():
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def server(anyio_backend, bay_server):
    it = bay_server(echo)
    await it.start()
    yield it
    await it.stop()


async def until(condition):
    """What happens inside of a host signals nobody."""
    with anyio.fail_after(WAIT_S):
        while not condition():
            await anyio.lowlevel.checkpoint()


class Running:
    """A host that answers, before one model server."""

    def __init__(self, tmp_path, server):
        self.tmp_path, self.server = tmp_path, server
        self.host = self.address = None

    def config(self, extra=""):
        text = (
            f"apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: {self.tmp_path}/state\nsources: []\n"
            "scrape: {process: false, interval: 1s}\nlisten: {http: '127.0.0.1:0'}\n"
            f"endpoints: [{{url: 'http://127.0.0.1:{self.server.port}'}}]\n{extra}"
        )
        return load_host_config(text, file="host.yaml", base_directory=self.tmp_path, environment={}, is_root=False)

    @asynccontextmanager
    async def run(self, extra="", picker=PICKER):
        read = load_picker_config(picker, file="picker.yaml")
        self.host = Host(self.config(extra), read, picker_directory=self.tmp_path)
        stop, began, at = anyio.Event(), anyio.Event(), []

        def serving(where):
            at.append(where)
            began.set()

        async with anyio.create_task_group() as group:
            group.start_soon(self.host.run, serving, stop)
            with anyio.fail_after(WAIT_S):
                await began.wait()
            await until(lambda: self.host.status()["ready"])
            self.address = at[0].address
            yield self
            stop.set()

    async def post(self, path, value):
        body = orjson.dumps(value)
        head = b"POST %b HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        with anyio.fail_after(WAIT_S):
            async with await anyio.connect_tcp(*self.address) as stream:
                await stream.send(head % (path.encode(), len(body)) + body)
                received = b""
                while True:
                    try:
                        received += await stream.receive()
                    except anyio.EndOfStream:
                        break
        head, _, answer = received.partition(b"\r\n\r\n")
        return int(head.split()[1]), orjson.loads(answer)

    async def asked_for(self):
        return (await self.post("/v1/completions", {"model": "m", "prompt": "x"}))[1]["model"]


@pytest.fixture
def running(tmp_path, server):
    return Running(tmp_path, server)


async def test_models_of_files_are_asked_for_followed_and_kept_when_a_file_turns_bad(running, tmp_path):
    path = tmp_path / "models.yaml"
    path.write_text(MODELS.replace("TARGET", "first"))
    async with running.run("models: {files: [models.yaml]}\n") as it:
        assert await it.asked_for() == "first"
        path.write_text(MODELS.replace("TARGET", "second"))
        await until(lambda: it.host._models.rules.target("m", lambda: 0.0) == "second")
        assert await it.asked_for() == "second"
        path.write_text("kind: [")
        await until(lambda: any("models.yaml" in one for one in it.host.status()["problems"]))
        assert await it.asked_for() == "second"


async def test_reload_changes_files_and_parsers_or_nothing(running, tmp_path):
    (tmp_path / "good.yaml").write_text(MODELS.replace("TARGET", "other"))
    (tmp_path / "bad.yaml").write_text(MODELS.replace("targets", "target"))
    async with running.run(picker=PICKER + PARSERS) as it:
        message = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        assert await it.asked_for() == "m"
        status, answer = await it.post("/v1/messages", message)
        assert (status, answer["error"]["code"]) == (400, "unclaimed-path")
        picker = load_picker_config(PICKER, file="picker.yaml")
        with pytest.raises(InputError, match=r"bad\.yaml:4:"):
            await it.host.adopt(it.config("models: {files: [bad.yaml]}\n"), picker)
        assert (await it.asked_for(), (await it.post("/v1/messages", message))[0]) == ("m", 400)
        await it.host.adopt(it.config("models: {files: [good.yaml]}\n"), picker)
        assert (await it.asked_for(), (await it.post("/v1/messages", message))[0]) == ("other", 200)


async def test_host_with_a_bad_file_of_models_does_not_start(running, tmp_path):
    (tmp_path / "bad.yaml").write_text(MODELS.replace("targets", "target"))
    picker = load_picker_config(PICKER, file="picker.yaml")
    host = Host(running.config("models: {files: [bad.yaml]}\n"), picker, picker_directory=tmp_path)
    with pytest.raises(InputError, match=r"bad\.yaml:4:") as error:
        await host.run(lambda serving: None, anyio.Event())
    assert error.value.code == "UNKNOWN_FIELD"
