"""How the commands of this folder's tests are launched."""

import sys
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path

import hotbay_sdk
import msgpack
import pytest
from hotbay.conformance.link import Patience
from hotbay.conformance.suite import RULES, run_suite
from hotbay.conformance.verdict import Result
from hotbay.process.launch import STAGE0, LaunchSpec

PEER = Path(__file__).with_name("reference_peer.py")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def reference(tmp_path: Path) -> Callable[..., LaunchSpec]:
    """Launch the peer that is written without the SDK."""

    def spec(*arguments: str) -> LaunchSpec:
        # Not isolated: it imports its own files from its folder.
        argv = (sys.executable, "-E", "-s", str(PEER), *arguments)
        return LaunchSpec(argv[0], STAGE0, "", "", str(tmp_path), "none", "reference#1", argv=argv)

    return spec


@pytest.fixture
def from_source(tmp_path: Path) -> Callable[[Path, str], LaunchSpec]:
    """Launch a plugin's project as it lies there, with the SDK of this checkout: real stage 0, no packing."""

    def spec(project: Path, entrypoint: str) -> LaunchSpec:
        site = tmp_path / "site"
        site.mkdir()
        folders = (project, *(Path(str(module.__file__)).parents[1] for module in (hotbay_sdk, msgpack)))
        (site / "source.pth").write_text("".join(f"{folder}\n" for folder in folders))
        return LaunchSpec(sys.executable, STAGE0, str(site), entrypoint, str(tmp_path), "none", "source#1")

    return spec


@pytest.fixture
def judge() -> Callable[..., object]:
    """Run the suite, or some of its rules, and return the results."""

    async def run(
        spec: LaunchSpec,
        *only: str,
        patience: Patience | None = None,
        parameters: Mapping[str, Mapping[str, object]] | None = None,
    ) -> list[Result]:
        rules = [rule for rule in RULES if not only or rule.id in only]
        async with aclosing(run_suite(spec, rules=rules, patience=patience, parameters=parameters)) as results:
            return [result async for result in results]

    return run
