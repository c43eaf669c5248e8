"""Engines' KV events reach the precise producer in its own process, and prompts go where their blocks are."""

import sys
import zipfile
from importlib import import_module
from pathlib import Path

import anyio
import anyio.to_thread
import msgpack
import orjson
import pytest
from hotbay.packages.layout import blob_path, read_layout, write_layout

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

LAYOUT = Path(__file__).resolve().parents[3] / "build" / "packages" / "prefix-cache"
PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- name: learn
  type: precise-prefix-cache-producer
  parameters: {{kvEventsConfig: {{zmqEndpoint: "{address}", discoverPods: false}}}}
- {{name: rate, type: prefix-cache-scorer, parameters: {{prefixMatchInfoProducerName: learn}}}}
schedulingProfiles:
- name: default
  plugins: [{{pluginRef: rate}}]
"""
CONFIG = "bindings: {learn: {deadline: 5s}, rate: {deadline: 5s}}\n"
SIZE = 16
IN_A_ROW = 24


@pytest.fixture
def engine(tmp_path):
    """A publisher's socket, of the pyzmq that the package brings, and an address that nobody has."""
    (manifest,) = read_layout(LAYOUT)
    (wheel,) = [blob for blob in manifest.blobs if blob.name.startswith("pyzmq-")]
    with zipfile.ZipFile(blob_path(LAYOUT, wheel.digest)) as archive:
        archive.extractall(tmp_path / "pyzmq")
    sys.path.insert(0, str(tmp_path / "pyzmq"))
    zmq = import_module("zmq")
    context = zmq.Context()
    probe = context.socket(zmq.XPUB)
    probe.bind("tcp://127.0.0.1:0")
    address = probe.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()
    probe.close()
    socket = context.socket(zmq.XPUB)
    socket.setsockopt(zmq.RCVTIMEO, 60_000)
    socket.setsockopt(zmq.LINGER, 0)
    yield socket, address
    socket.close()
    context.term()
    sys.path.remove(str(tmp_path / "pyzmq"))


def message(sequence: int, *events: object, who: str) -> list[bytes]:
    """As vLLM's publisher sends it."""
    return [f"kv@{who}@m".encode(), sequence.to_bytes(8, "big"), msgpack.packb([1764604800.5, list(events), 0])]


async def answers(bay, tokens: list[int], wanted: str) -> None:
    """Ask until so many answers in a row come from one endpoint, which by chance they hardly do."""
    body, row = orjson.dumps({"model": "m", "prompt": tokens}), 0
    with anyio.fail_after(60):
        while row < IN_A_ROW:
            answer = await bay.client.send(b"POST /v1/completions", body)
            assert answer.status == 200
            row = row + 1 if answer.text == wanted else 0


async def test_prompts_go_where_engines_say_that_their_blocks_are(host, tmp_path, engine):
    socket, address = engine
    (manifest,) = read_layout(LAYOUT)
    write_layout(tmp_path / "packages" / "v1", manifest, {b.name: blob_path(LAYOUT, b.digest) for b in manifest.blobs})
    async with host(PICKER.format(address=address), config=CONFIG) as bay:
        socket.connect(address)
        assert await anyio.to_thread.run_sync(socket.recv) == b"\1kv@"
        tokens = list(range(4 * SIZE))
        stored = ["BlockStored", [1, 2, 3, 4], None, tokens, SIZE, None, "GPU", None]
        socket.send_multipart(message(0, stored, who="v2"))
        await answers(bay, tokens, "v2")
        socket.send_multipart(message(1, ["AllBlocksCleared"], who="v2"))
        socket.send_multipart(message(0, stored, who="v1"))
        await answers(bay, tokens, "v1")
