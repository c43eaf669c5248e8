"""Real llama.cpp servers: what they answer, how they end, and what the data layer reads off them."""

import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.scraping.in_loop import Scraper
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.store import EndpointStore
from hotbay.demo.llama import LlamaServer, LlamaSpec
from hotbay.demo.model import SHAPES, write_model
from hotbay.errors import CapacityError

pytest.importorskip("xllamacpp", reason="the package xllamacpp is not installed")
pytest.importorskip("gguf", reason="the package gguf is not installed")
pytestmark = [pytest.mark.process, pytest.mark.anyio]


@pytest.fixture(scope="module", params=["uvloop"])
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_model(path, SHAPES["tiny"])
    return path


@pytest.fixture
def spec(model: Path, tmp_path: Path) -> LlamaSpec:
    return LlamaSpec(model=model, log=tmp_path / "llama.log", slots=2, slot_context=1024)


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


def post(url: str, body: dict[str, object]) -> bytes:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return bytes(answer.read())


async def in_thread(function: Any, *arguments: object) -> Any:
    return await anyio.to_thread.run_sync(function, *arguments)


async def test_it_answers_as_openai_does_with_one_token_per_byte(spec: LlamaSpec) -> None:
    server = LlamaServer.start(spec)
    try:
        await server.wait_ready()
        models = json.loads(await in_thread(get, server.url + "/v1/models"))
        assert [m["id"] for m in models["data"]] == ["hotbay-demo"]
        text = json.loads(
            await in_thread(post, server.url + "/v1/completions", {"prompt": "hello wörld", "max_tokens": 9})
        )
        assert text["usage"]["prompt_tokens"] == len("hello wörld".encode())
        assert text["usage"]["completion_tokens"] == len(text["choices"][0]["text"]) == 9
        assert text["choices"][0]["text"].isprintable()
        chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
        answer = json.loads(await in_thread(post, server.url + "/v1/chat/completions", chat))
        assert len(answer["choices"][0]["message"]["content"]) == 5
        stream = await in_thread(post, server.url + "/v1/chat/completions", chat | {"stream": True})
        events = [line.removeprefix(b"data: ") for line in stream.splitlines() if line]
        assert events[-1] == b"[DONE]"
        deltas = [json.loads(event)["choices"][0]["delta"].get("content") for event in events[:-1]]
        assert len("".join(filter(None, deltas))) == 5
    finally:
        await server.stop()


async def test_a_repeated_prompt_comes_from_the_prefix_cache(spec: LlamaSpec) -> None:
    server = LlamaServer.start(spec)
    try:
        await server.wait_ready()
        body: dict[str, object] = {"prompt": "x" * 500, "max_tokens": 1}
        for cached_at_least, cached_at_most in ((0, 0), (490, 500)):
            usage = json.loads(await in_thread(post, server.url + "/v1/completions", body))["usage"]
            assert cached_at_least <= usage["prompt_tokens_details"]["cached_tokens"] <= cached_at_most
    finally:
        await server.stop()


class TellingStore(EndpointStore):
    """A store that tells when metrics arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.news = anyio.Event()

    def update_metrics(self, endpoint_id: str, metrics: Metrics, now: float) -> bool:
        written = super().update_metrics(endpoint_id, metrics, now)
        self.news.set()
        self.news = anyio.Event()
        return written


async def test_its_load_reaches_the_snapshot(spec: LlamaSpec) -> None:
    server = LlamaServer.start(spec)
    store = TellingStore()
    try:
        await server.wait_ready()
        port = int(server.url.rpartition(":")[2])
        store.upsert(EndpointMetadata("default/a", "a", "127.0.0.1", port))
        scraper = Scraper(store, MetricsPoller())
        seen = anyio.Event()

        async def keep_asking() -> None:
            while not seen.is_set():
                await in_thread(post, server.url + "/v1/completions", {"prompt": "y", "max_tokens": 500})

        async with anyio.create_task_group() as tasks:
            await tasks.start(scraper.run)
            # Four callers on two slots: two run and two wait, again and again.
            async with anyio.create_task_group() as callers:
                for _ in range(4):
                    callers.start_soon(keep_asking)
                with anyio.move_on_after(15):
                    while not seen.is_set():
                        await store.news.wait()
                        columns = store.publish(time.monotonic()).columns
                        if (columns["endpoint.running"][0], columns["endpoint.waiting"][0]) == (2.0, 2.0):
                            seen.set()
                busy = seen.is_set()
                seen.set()
            tasks.cancel_scope.cancel()
        assert busy
        facts = store.snapshot.facts[0]
        assert facts is not None
        assert facts.engine == "llamacpp"
        assert not scraper.counts.errors
        assert scraper.counts.connects <= 2
    finally:
        await server.stop()


async def test_stop_ends_the_process_and_may_be_called_again(spec: LlamaSpec) -> None:
    server = LlamaServer.start(spec)
    await server.wait_ready()
    await server.stop()
    await server.stop()
    assert not server.running
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


async def test_a_killed_server_is_reaped_and_another_takes_its_place(spec: LlamaSpec) -> None:
    first = LlamaServer.start(spec)
    await first.wait_ready()
    first.kill()
    await first.stop()
    second = LlamaServer.start(spec)
    try:
        await second.wait_ready()
        assert second.pid != first.pid
        assert json.loads(await in_thread(get, second.url + "/health")) == {"status": "ok"}
    finally:
        await second.stop()


async def test_a_model_that_does_not_load_is_reported_with_its_log(spec: LlamaSpec, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really")
    server = LlamaServer.start(LlamaSpec(model=broken, log=spec.log))
    try:
        with pytest.raises(CapacityError, match="ended before it listened") as caught:
            await server.wait_ready()
        assert str(broken) in caught.value.hint
        assert str(spec.log) in caught.value.hint
    finally:
        await server.stop()


STARTER = """
import sys
from pathlib import Path
from hotbay.demo.llama import LlamaServer, LlamaSpec
server = LlamaServer.start(LlamaSpec(model=Path(sys.argv[1]), log=Path(sys.argv[2])))
sys.stdout.write(f"{server.pid}\\n")
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.fixture
def starter(spec: LlamaSpec) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(spec.model), str(spec.log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    yield process
    process.kill()
    process.communicate()


async def test_it_dies_with_the_process_that_started_it(starter: "subprocess.Popen[bytes]") -> None:
    assert starter.stdout is not None
    pid = int(await in_thread(starter.stdout.readline))
    descriptor = os.pidfd_open(pid)
    try:
        starter.send_signal(signal.SIGKILL)
        ended, _, _ = await in_thread(select.select, [descriptor], [], [], 10.0)
        assert ended
    finally:
        os.close(descriptor)
