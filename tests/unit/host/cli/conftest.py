"""A store with packages in it, as a host leaves it."""

import shutil
from pathlib import Path

import pytest
from hotbay.packages.layout import write_layout
from hotbay.packages.manifest import Blob, Channel, Manifest, ProtocolRange
from hotbay.packages.oci import index_bytes, parse_index
from hotbay.store.digests import digest_of


@pytest.fixture
def make_store(tmp_path: Path):
    """make_store(path, (id, rev), …): the layout of a store that has these packages complete."""

    def make(path: Path, *builds: tuple[str, int]) -> list[Manifest]:
        entries, manifests = [], []
        for plugin, rev in builds:
            content = f"wheel of {plugin} {rev}".encode() * 1000
            name = f"{plugin}-{rev}-py3-none-any.whl"
            manifest = Manifest(
                id=plugin,
                publisher="tests",
                rev=rev,
                version=f"{rev}.0.0",
                platform="python-cp311-linux-x86_64",
                entrypoint="sample:plugin",
                types=(f"{plugin}-scorer",),
                protocol=ProtocolRange(first=1, last=1),
                blobs=(Blob(name=name, digest=digest_of(content), size=len(content)),),
                channel=Channel.DEV,
            )
            wheel, layout = tmp_path / "wheel", tmp_path / "layout"
            wheel.write_bytes(content)
            write_layout(layout, manifest, {name: wheel})
            shutil.copytree(layout / "blobs", path / "blobs", dirs_exist_ok=True)
            shutil.copyfile(layout / "oci-layout", path / "oci-layout")
            entries += parse_index((layout / "index.json").read_bytes(), origin="made")
            manifests.append(manifest)
        (path / "index.json").write_bytes(index_bytes(entries))
        return manifests

    return make
