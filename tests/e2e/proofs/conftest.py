"""Fixtures of the proofs: a running host, its model servers and packages, and the scale."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.proofs.kit import Client, HostUnderProof, end, is_ready, serving_address
from tests.integration.conftest import ModelServer, Packages, real_wheels, servers, text, wait_until

__all__ = ["packages", "real_wheels", "servers", "text"]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> float:
    """What counts and times are multiplied with."""
    return float(request.config.getoption("--proof-scale"))


@pytest.fixture
def packages(tmp_path: Path, real_wheels: dict[str, Path]) -> Packages:  # a fixture by its name
    return Packages(tmp_path / "wheels", real_wheels)


@pytest.fixture
def host(tmp_path: Path, servers: list[ModelServer], packages: Packages):  # fixtures by their names
    """host(picker, config): a running host, as a context; over the watched folder `packages` unless `sources` says else."""
    for name in ("packages", "making", "state"):
        (tmp_path / name).mkdir(exist_ok=True)

    @asynccontextmanager
    async def run(
        picker: str,
        config: str,
        *,
        prepare: Callable[[HostUnderProof], None],
        sources: str = "[{name: proof, directory: packages}]",
    ) -> AsyncIterator[Any]:
        (tmp_path / "picker.yaml").write_text(picker)
        endpoints = "".join(f"- {{name: {s.name}, url: 'http://127.0.0.1:{s.port}'}}\n" for s in servers)
        (tmp_path / "host.yaml").write_text(
            "apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: state\nlisten: {http: '127.0.0.1:0'}\n"
            f"scheduling: {{file: picker.yaml}}\nsources: {sources}\n"
            f"logging: {{level: info, format: text, access: false}}\nscrape: {{interval: 1s}}\nendpoints:\n{endpoints}{config}\n"
        )
        found = HostUnderProof(tmp_path, servers, packages, tmp_path / "host.yaml")
        prepare(found)
        found.process = found.start()
        try:
            found.client = Client(await serving_address(found))
            await wait_until(partial(is_ready, found), told=found.tail)
            yield found
        finally:
            found.client.close()
            await end(found.process)

    return run
