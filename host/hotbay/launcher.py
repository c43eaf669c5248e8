"""Makes launch specifications from the operator's wishes, and keeps what plugins wrote last."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from hotbay.config.host_config import HostConfig
from hotbay.packages.manifest import Manifest
from hotbay.process.launch import STAGE0, LaunchSpec
from hotbay.process.log import LogLine, LogSink
from hotbay.rollout.instance import StartOptions
from hotbay.store.state_dir import StateDirectory
from hotbay.wishes import entry_of

__all__ = ["Launcher"]

LOGS_KEPT: Final = 4
"""Processes of one plugin whose last lines are kept: the live one, a candidate, and the two that went before."""


class Launcher:
    """See the module. `config` is what holds for a routine at each call; `records` is the folder of process records,
    `gives_way` as in `StartOptions`."""

    def __init__(
        self,
        config: Callable[[str], HostConfig],
        state: StateDirectory,
        interpreter_of: Callable[[str], str],
        records: str,
        *,
        gives_way: bool = True,
    ) -> None:
        self._config = config
        self._state = state
        self._interpreter_of = interpreter_of
        self._records = records
        self._gives_way = gives_way
        self._logs: dict[str, deque[LogSink]] = {}

    def spec(self, name: str, manifest: Manifest, site: Path, number: int) -> LaunchSpec:
        """How to start a package for a routine."""
        config = self._config(name)
        entry = entry_of(config, name)
        return LaunchSpec(
            interpreter=self._interpreter_of(manifest.platform),
            stage0=STAGE0,
            environment=str(site),
            entrypoint=manifest.entrypoint,
            working_directory="/",
            level=entry.isolation or config.isolation.level,
            label=f"{name}#{number}",
            record_in=self._records,
            arm_timeout_s=entry.hello_s,
            hello_timeout_s=entry.hello_s,
            ready_timeout_s=entry.ready_s,
        )

    def next_generation(self) -> int:
        """A number that was never given before in this state directory. Raises `CapacityError`."""
        return self._state.next_generation()

    def options(self, name: str) -> StartOptions:
        """Deadlines and WELCOME's contents."""
        config = self._config(name)
        return StartOptions(
            configure_timeout_s=entry_of(config, name).ready_s,
            log_level=config.logging.level,
            seed=random.SystemRandom().getrandbits(63),
            gives_way=self._gives_way,
        )

    def log(self, name: str, label: str, rev: int) -> LogSink:
        """Where the output of a new process of this revision goes."""
        sink = LogSink(label, rev=rev)
        self._logs.setdefault(name, deque(maxlen=LOGS_KEPT)).append(sink)
        return sink

    def lines(self, name: str) -> Iterator[LogLine]:
        """What the newest processes of a plugin wrote last, the oldest line first."""
        for sink in self._logs.get(name, ()):
            yield from sink.lines()
