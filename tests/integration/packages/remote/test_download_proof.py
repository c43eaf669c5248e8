"""From a remote source to a runnable package, through faults at every block: complete only when nothing is missing."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hotbay.errors import PackageError
from hotbay.packages.manifest import Manifest
from hotbay.packages.publish import Folder, parse_target, publish
from hotbay.packages.sources.http import HttpSource
from hotbay.packages.sources.registry import RegistrySource
from hotbay.store.world.records import Completion

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.timeout(120)]

BLOCK = 8 << 10
# Two wheels of some 17 KiB.
BOUNDARIES = range(5)


@pytest.fixture
async def plugin(web, write_plugin: Callable[..., Manifest], tmp_path: Path) -> Manifest:
    """An installable package at the web server's root."""
    filler = bytes(range(256)) * 64
    files = {"sample/__init__.py": b"plugin = 1\n", "sample/data": filler}
    manifest = write_plugin(tmp_path / "p", files=files, others=(("part", {"part/data": filler[::-1]}),))
    await publish(tmp_path / "p", Folder(web.root, as_layout=True))
    return manifest


@pytest.fixture
async def source(web, plugin: Manifest):
    source = HttpSource("remote", web.url)
    yield source
    await source.close()


@pytest.fixture
def fetched(fetching: Any, plugin: Manifest) -> Callable[[Any], Awaitable[Path]]:
    """fetched(source): what a host does with what the source offers, one blob at a time."""

    async def run(source: Any) -> Path:
        [offer] = (await source.scan()).offers
        assert offer.manifest == plugin
        ref = await fetching.know(offer.manifest, source, offer.location)
        site: Path = await fetching.fetcher(concurrency=1).fetch(ref)
        return site

    return run


def cut_at(web, plugin: Manifest, budget: int, wrong: bytes = b"") -> None:
    """The server sends so many bytes of wheels in all, then hangs up; of `wrong` content if given."""
    left = budget

    def rule(_request: object, given: Any) -> Any:
        nonlocal left
        given = replace(given, headers={"ETag": '"wrong"'}, status=200, body=wrong) if wrong else given
        count = min(left, len(given.body))
        left -= count
        return given if count == len(given.body) else replace(given, cut_after=count)

    for blob in plugin.blobs:
        web.rule(blob.digest[7:], rule)


def wheel_bytes(web, plugin: Manifest) -> int:
    return sum(web.sent_of(blob.digest[7:]) for blob in plugin.blobs)


@pytest.mark.parametrize("block", BOUNDARIES)
async def test_hb10_a_download_cut_after_any_block_of_a_package_is_resumed(
    web, plugin, source, fetching, fetched, block
) -> None:
    cut_at(web, plugin, block * BLOCK)

    with pytest.raises(PackageError) as caught:
        await fetched(source)

    assert caught.value.code == "FETCH_FAILED"
    assert fetching.world.view.all(Completion) == ()
    web.rules.clear()
    site = await fetched(source)
    assert (site / "sample" / "__init__.py").is_file()
    assert [done.digest for done in fetching.world.view.all(Completion)] == [plugin.digest]
    assert wheel_bytes(web, plugin) == plugin.size_bytes, "no block was sent twice"


@pytest.mark.parametrize("block", BOUNDARIES)
async def test_p01_a_package_released_again_with_other_bytes_is_refused_at_any_block(
    web, plugin, source, fetching, fetched, block
) -> None:
    """The first blocks are right; when the download goes on, the server has other bytes under the same name."""
    cut_at(web, plugin, block * BLOCK)
    with pytest.raises(PackageError):
        await fetched(source)
    cut_at(web, plugin, 1 << 30, wrong=b"?" * max(blob.size for blob in plugin.blobs))

    with pytest.raises(PackageError) as caught:
        await fetched(source)

    assert caught.value.code in ("DIGEST_MISMATCH", "LENGTH_MISMATCH")
    assert fetching.world.view.all(Completion) == ()
    web.rules.clear()
    await fetched(source)
    assert len(fetching.world.view.all(Completion)) == 1


async def test_a_package_runs_from_a_registry_and_without_it(registry, fetching, fetched, plugin, tmp_path) -> None:
    target = f"{registry.host}/proof/sample"
    await publish(tmp_path / "p", parse_target(target))
    source = RegistrySource("registry", target)

    site = await fetched(source)

    assert (site / "part" / "data").is_file()
    await source.close()
    ref = await fetching.know(plugin, source)
    fetching.sources.clear()
    assert await fetching.fetcher().fetch(ref) == site


async def test_a_second_source_helps_out_when_the_first_one_breaks_off(
    registry, web, source, plugin, fetching, tmp_path
) -> None:
    target = f"{registry.host}/proof/second"
    await publish(tmp_path / "p", parse_target(target))
    second = RegistrySource("registry", target)
    cut_at(web, plugin, BLOCK)
    await fetching.know(plugin, second)
    ref = await fetching.know(plugin, source)

    site = await fetching.fetcher(concurrency=1).fetch(ref)

    assert (site / "sample" / "data").is_file()
    assert wheel_bytes(web, plugin) == BLOCK
    await second.close()
