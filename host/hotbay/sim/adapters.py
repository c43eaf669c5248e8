"""Which LoRA adapters are in the batch and in memory, and what the server said of them. Pure.

A batch holds at most `max_loras` different adapters. Those that were used last stay in memory, `max_cpu_loras` of them;
another one has to be loaded first.
"""

from collections.abc import Iterable
from typing import Final

__all__ = ["AdapterInfo", "AdapterMemory"]

SERIES_MAX: Final = 1000
"""Old combinations that are still shown. The real server keeps all; a page must not grow for ever."""


class AdapterMemory:
    """Adapters in memory, the one used longest ago first to go."""

    def __init__(self, max_cpu_loras: int) -> None:
        self._size = max_cpu_loras
        self._held: dict[str, None] = {}

    @property
    def held(self) -> tuple[str, ...]:
        """Names, the one used last at the end."""
        return tuple(self._held)

    def use(self, name: str) -> bool:
        """Use an adapter; whether it had to be loaded."""
        is_held = name in self._held
        self._held.pop(name, None)
        self._held[name] = None
        if len(self._held) > self._size:
            del self._held[next(iter(self._held))]
        return not is_held

    def forget(self, name: str) -> None:
        """An adapter was removed from the server."""
        self._held.pop(name, None)


class AdapterInfo:
    """What `vllm:lora_requests_info` shows: a series for each combination ever seen, its value the time of the last look.

    There is none before the first request that names an adapter.
    """

    def __init__(self) -> None:
        self._seen_at: dict[tuple[str, str], float] = {}

    @property
    def series(self) -> tuple[tuple[str, str, float], ...]:
        """(running, waiting, engine time in seconds): names joined by commas, in the order of their requests."""
        return tuple((running, waiting, at) for (running, waiting), at in self._seen_at.items())

    def look(self, running: Iterable[str], waiting: Iterable[str], now: float) -> None:
        """Note which adapters running and waiting requests name; "" names none."""
        key = _joined(running), _joined(waiting)
        if key == ("", "") and not self._seen_at:
            return
        self._seen_at[key] = now
        if len(self._seen_at) > SERIES_MAX:
            oldest = min(self._seen_at, key=self._seen_at.__getitem__)
            del self._seen_at[oldest]


def _joined(names: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(name for name in names if name))
