"""What a plugin prints: all of it in its log, none in the channel, whatever the amount (L01, L03)."""

from pathlib import Path

import pytest
from hotbay.process.log import RING_CHARS

pytestmark = [pytest.mark.process, pytest.mark.anyio]

PRINTS_EVERYWHERE = """
import os, subprocess
print("printed at import")
from hotbay_sdk._serve import answer_calls

def main(call_in, call_out, control):
    print("printed after hello")
    os.write(1, b"written to descriptor 1\\n")
    subprocess.run(["echo", "echoed by a child"], check=True)
    def handle(body):
        print("call", body.decode())
        return body
    answer_calls(call_in, call_out, handle)
"""


async def test_l01_print_goes_to_log(start_plugin, plugin_log):
    plugin = await start_plugin(PRINTS_EVERYWHERE)
    await plugin.hello()
    answers = [await plugin.call(b"%d" % n) for n in range(1000)]
    assert answers == [b"%d" % n for n in range(1000)]
    await plugin_log.line("call 999")
    assert plugin_log.lines == [
        "printed at import",
        "printed after hello",
        "written to descriptor 1",
        "echoed by a child",
        *(f"call {n}" for n in range(1000)),
    ]


async def test_l01_print_reaches_log_although_killed(start_plugin, plugin_log):
    plugin = await start_plugin(PRINTS_EVERYWHERE)
    await plugin.hello()
    await plugin.call(b"last words")
    plugin.child.kill_group()
    await plugin.ended()
    assert plugin.log.tail(100).endswith("call last words")
    assert plugin.child.exit.stderr_tail.endswith("call last words")


async def test_line_carries_ids_as_fields(start_plugin, plugin_log):
    plugin = await start_plugin(PRINTS_EVERYWHERE)
    await plugin.hello()
    await plugin_log.line("printed at import")
    record = plugin_log.records[0]
    assert (record.plugin, record.pid, record.stream) == ("faulty#1", plugin.child.pid, "stderr")


async def test_unfinished_line_is_kept_at_exit(start_plugin):
    plugin = await start_plugin(
        "import os\ndef main(*links):\n    os.write(2, b'fatal: no newline')\n    os._exit(9)\n"
    )
    await plugin.hello()
    await plugin.ended()
    assert plugin.child.exit.code == 9
    assert plugin.child.exit.stderr_tail == "fatal: no newline"


FLOODS = """
import os, threading, time
block = b"x" * (1 << 20)
for _ in range(10):
    os.write(2, block)
from hotbay_sdk._serve import answer_calls, say

written = 0
another = threading.Event()

def flood():
    global written
    while True:
        os.write(2, block[:1 << 16])
        written += 1 << 16
        another.set()
        time.sleep(1 / 16)

def main(call_in, call_out, control):
    say(control, "imported")
    threading.Thread(target=flood, daemon=True).start()
    def handle(body):
        another.wait()
        another.clear()
        return str(written).encode()
    answer_calls(call_in, call_out, handle)
"""


async def test_l03_stderr_flood_without_newline_stops_nothing(start_plugin, plugin_log):
    plugin = await start_plugin(FLOODS)
    before_kib = _resident_kib()
    await plugin.hello()
    assert await plugin.said() == "imported"
    while int(await plugin.call(b"")) < 2 << 20:
        pass
    await plugin_log.line("dropped ")
    assert _resident_kib() - before_kib < 8 * 1024
    assert plugin.log.dropped_bytes > 8 << 20
    assert sum(len(line.text) for line in plugin.log.lines()) <= RING_CHARS + 100


def _resident_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
