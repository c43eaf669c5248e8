"""A host whose model servers are discovered: when it is ready, and how one discovery takes the place of another."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hotbay.config.picker_config import load_picker_config
from hotbay.datalayer.endpoint import EndpointEvent
from hotbay.errors import InputError

pytestmark = [pytest.mark.process, pytest.mark.anyio]

PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: max-score-picker}
- {name: found, type: %s, parameters: %s}
dataLayer: {discovery: {pluginRef: found}}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: max-score-picker}]
"""


class Registry:
    """A web server with one document, or none."""

    def __init__(self) -> None:
        self.document: object = None
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        status, body = (b"503 Busy", b"") if self.document is None else (b"200 OK", orjson.dumps(self.document))
        writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (status, len(body), body))
        writer.close()


@pytest.fixture
async def registry(anyio_backend: object) -> AsyncIterator[Registry]:
    found = Registry()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()
    await server.wait_closed()


def asks(registry: Registry) -> str:
    return PICKER % ("http-sd-discovery", f"{{url: 'http://127.0.0.1:{registry.port}/', interval: 1s}}")


@pytest.fixture
def unnamed(servers: list[Any]) -> list[Any]:
    """Two model servers that the host's configuration does not name."""
    found = servers.copy()
    servers.clear()
    return found


def names(bay: Any) -> list[str]:
    return [endpoint["id"] for endpoint in bay.status()["endpoints"]]


async def test_a_host_is_ready_when_its_discovery_is_and_serves_what_it_found(
    host: Any, unnamed: list[Any], registry: Registry
) -> None:
    async with host(asks(registry), ready=False) as bay:
        await bay.wait_for(lambda: any("expected 200, found 503" in text for text in bay.status()["problems"]))
        page = await bay.client.send(b"GET /readyz")
        assert page.status == 503
        assert "http-sd-discovery 'found' has not told its endpoints yet" in bay.status()["not_ready"]
        registry.document = [{"targets": [f"127.0.0.1:{unnamed[0].port}"] * 2}]
        await bay.ready()
        assert (await bay.client.send(b"GET /readyz")).status == 200
        assert (await bay.client.chat()).text == "v1"
        # What could be read in two ways is told, beside problems.
        (warning,) = bay.status()["warnings"]
        assert "DUPLICATE_NAME" in warning
        (polled,) = bay.status()["polled"]
        assert polled["source"] == "metrics-data-source"
        assert polled["extractors"] == ["core-metrics-extractor"]
        assert polled["interval_s"] >= polled["asked_s"] >= 0.05
        assert bay.status()["problems"] == []


async def test_another_discovery_takes_over_under_load_and_no_request_finds_the_pool_empty(
    host: Any, servers: list[Any], unnamed: list[Any], registry: Registry, tmp_path: Path
) -> None:
    first, second = (server.port for server in unnamed)
    file = tmp_path / "endpoints.yaml"
    file.write_text(f"endpoints: [{{name: one, address: 127.0.0.1, port: {first}}}]\n")
    reads = PICKER % ("file-discovery", "{path: endpoints.yaml, watchFile: true}")
    async with host(reads) as bay:
        heard: list[tuple[EndpointEvent, int]] = []
        store = bay.host._data.store
        store.subscribe(lambda event: heard.append((event, len(store))))
        async with bay.load(50) as load:
            await load.more(10)
            # Nobody knows yet what the registry says: the file's endpoint stays.
            await bay.host.adopt(bay.configure(""), load_picker_config(asks(registry), file="picker.yaml"))
            await bay.wait_for(lambda: any("found 503" in text for text in bay.status()["problems"]))
            await load.more(10)
            assert names(bay) == ["default/one"]
            registry.document = [{"targets": [f"127.0.0.1:{second}"]}]
            await bay.wait_for(lambda: names(bay) == [f"default/127.0.0.1:{second}"])
            await load.more(10)
            # And back, with the configuration's own endpoint for the same server before it.
            servers.append(unnamed[1])
            await bay.host.adopt(bay.configure(""), load_picker_config(reads, file="picker.yaml"))
            await bay.wait_for(lambda: sorted(names(bay)) == ["default/one", "default/v2"])
            await load.more(10)
        assert load.failed == []
        assert min(size for _, size in heard) >= 1
        assert bay.status()["ready"]


async def test_a_discovery_that_cannot_be_used_is_refused_at_a_reload_and_the_old_one_goes_on(
    host: Any, unnamed: list[Any]
) -> None:
    entry = f"{{endpoints: [{{name: one, address: 127.0.0.1, port: {unnamed[0].port}}}]}}"
    async with host(PICKER % ("static-discovery", entry)) as bay:
        assert names(bay) == ["default/one"]
        wrong = PICKER % ("static-discovery", "{endpoints: [{name: two, address: nowhere, port: 1}]}")
        with pytest.raises(
            InputError, match=r"picker\.yaml:6:\d+: .*plugins\[1\]\.parameters\.endpoints\[0\]\.address"
        ):
            await bay.host.adopt(bay.configure(""), load_picker_config(wrong, file="picker.yaml"))
        assert names(bay) == ["default/one"]
        assert (await bay.client.chat()).status == 200
