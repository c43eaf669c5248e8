"""The package's plugin, to which the modules of types add theirs, and the names of its data."""

from collections.abc import Iterable
from typing import Final

from hotbay_sdk import Plugin

plugin = Plugin("latency")

KEY: Final = "LatencyPredictionInfo"
TTFT: Final = f"{KEY}.ttft_ms"
TPOT: Final = f"{KEY}.tpot_ms"
TTFT_HEADROOM: Final = f"{KEY}.ttft_headroom_ms"
TPOT_HEADROOM: Final = f"{KEY}.tpot_headroom_ms"

TTFT_HEADER: Final = "x-llm-d-slo-ttft-ms"
TPOT_HEADER: Final = "x-llm-d-slo-tpot-ms"
HEADER_READS: Final = (f"request.headers[{TTFT_HEADER}]", f"request.headers[{TPOT_HEADER}]")


def named(column: str, producer: str) -> str:
    """The column of one producer, by its ref's name; of whichever there is for an empty one."""
    if not producer:
        return column
    key, _, field = column.partition(".")
    return f"{key}/{producer}.{field}"


def beyond(columns: Iterable[str], declared: Iterable[str]) -> tuple[str, ...]:
    """Those that an instance consumes beside what its type declares."""
    return tuple(name for name in columns if name not in tuple(declared))
