"""The routers of a study: this product with its profiles, and others' own binaries with theirs.

Others are installed from the package index into environments of their own below the build folder. A router is a command that
listens on a port of the loopback in front of given servers; it is ready when it answers a request.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.probes import UnavailableError

__all__ = ["OURS", "PEERS", "REFERENCES", "Router", "running"]

_UV: Final = str(Path(sys.executable).with_name("uv"))
_INSTALL_WITHIN_S: Final = 600.0
_END_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Router:
    """A router in one set-up. `command` gives its command line for (build folder, port, servers' ports)."""

    name: str
    command: Callable[[Path, int, Sequence[int]], Sequence[str]]


def _urls(ports: Sequence[int]) -> list[str]:
    return [f"http://127.0.0.1:{port}" for port in ports]


# -- this product ----------------------------------------------------------------------------------

_HEAD: Final = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
PROFILES: Final[Mapping[str, str]] = {
    "default": "",
    "tokens": _HEAD
    + """plugins:
- {type: approx-prefix-cache-producer, parameters: {blockSizeTokens: 16}}
- {type: inflight-load-producer, parameters: {release: first-token}}
- {type: token-load-scorer, parameters: {queueThresholdTokens: 65536}}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: token-load-scorer, weight: 1}
""",
    "random": _HEAD + "plugins: [{type: random-picker}]\n",
}


def _hotbay(profile: str) -> Router:
    def command(build: Path, port: int, servers: Sequence[int]) -> Sequence[str]:
        folder = build / "routing" / profile
        folder.mkdir(parents=True, exist_ok=True)
        endpoints = "".join(f"- {{url: '{url}'}}\n" for url in _urls(servers))
        picker = folder / "picker.yaml"
        picker.write_text(PROFILES[profile])
        (folder / "host.yaml").write_text(
            "apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: state\n"
            f'listen: {{http: "127.0.0.1:{port}"}}\n'
            f"scheduling: {{file: {picker.name}}}\nisolation: {{level: none}}\n"
            f"scrape: {{interval: 50ms}}\nendpoints:\n{endpoints}"
        )
        return [sys.executable, "-m", "hotbay.cli", "run", "-c", str(folder / "host.yaml")]

    return Router(f"hotbay {profile}", command)


OURS: Final = (_hotbay("default"), _hotbay("tokens"))


# -- others ------------------------------------------------------------------------------------------

VERSIONS: Final[Mapping[str, str]] = {"vllm-router": "0.1.17", "smg": "1.13.0", "sglang-router": "0.3.2"}
_PROGRAMS: Final[Mapping[str, Sequence[str]]] = {
    "vllm-router": ("-m", "vllm_router.launch_router"),
    "smg": ("-m", "smg", "launch"),
    "sglang-router": ("-m", "sglang_router.launch_router"),
}
_TUNED: Final = ("--balance-abs-threshold", "3", "--balance-rel-threshold", "1.2")
"""For a fleet with a few requests a server: the defaults wait for a difference of tens of requests."""


def _peer(name: str, policy: str, *more: str, label: str = "") -> Router:
    def command(build: Path, port: int, servers: Sequence[int]) -> Sequence[str]:
        folder = _installed(build / "peers" / f"{name}-{VERSIONS[name]}", name)
        where = ["--host", "127.0.0.1", "--port", str(port), "--worker-urls", *_urls(servers)]
        return [str(folder / "bin" / "python"), *_PROGRAMS[name], *where, "--policy", policy, *more]

    return Router(label or f"{name} {policy}", command)


def _installed(folder: Path, name: str) -> Path:
    """The environment of one of the others, made if it is not there. Raises `UnavailableError`."""
    if not (folder / "complete").exists():
        python = str(folder / "bin" / "python")
        wanted = f"{name}=={VERSIONS[name]}"
        for arguments in (
            ["venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)],
            ["pip", "install", "--quiet", "--only-binary", ":all:", "--python", python, wanted],
        ):
            try:
                subprocess.run([_UV, *arguments], capture_output=True, text=True, timeout=_INSTALL_WITHIN_S, check=True)
            except (OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", None) or str(error)
                raise UnavailableError(f"{wanted} cannot be installed: {said.strip()[-300:]}") from error
        (folder / "complete").touch()
    return folder


PEERS: Final = tuple(
    router
    for name in VERSIONS
    for router in (
        _peer(name, "cache_aware"),
        _peer(name, "cache_aware", *_TUNED, label=f"{name} cache_aware, tuned"),
        _peer(name, "power_of_two"),
    )
)
REFERENCES: Final = (_hotbay("random"),)


@contextmanager
def running(router: Router, build: Path, port: int, servers: Sequence[int]) -> Iterator["subprocess.Popen[bytes]"]:
    """The router's process; ended on leaving, with everything that it started."""
    command = router.command(build, port, servers)
    log = build / "routing" / f"{router.name.replace(' ', '-').replace(',', '')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as opened:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=opened, stderr=opened, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_WITHIN_S)
        # It leads a group of its own: what it left behind goes, too.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
