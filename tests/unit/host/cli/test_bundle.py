"""A bundle is a whole layout that another host takes as a source, or it is not there."""

import json

import pytest
from hotbay.cli.bundle import bundle_command, quarantine_now, write_bundle
from hotbay.errors import CapacityError, InputError, PackageError
from hotbay.packages.layout import read_layout
from hotbay.store.world.engine import Put
from hotbay.store.world.records import Quarantine
from hotbay.store.world.sqlite import SqliteWorld


@pytest.fixture
def store(make_store, tmp_path):
    path = tmp_path / "state" / "store"
    path.mkdir(parents=True)
    make_store(path, ("one", 1), ("one", 2), ("two", 7))
    return path


def left(folder):
    return [path.name for path in folder.iterdir() if path.name.lstrip(".").startswith("out")]


def test_bundle_is_a_layout_of_everything_complete(store, tmp_path):
    bundled = write_bundle(store, tmp_path / "out")
    found = read_layout(tmp_path / "out")
    assert [(m.id, m.rev) for m in found] == [("one", 1), ("one", 2), ("two", 7)]
    assert found == bundled.manifests
    files = [path for path in (tmp_path / "out" / "blobs").rglob("*") if path.is_file()]
    assert bundled.size_bytes == sum(path.stat().st_size for path in files)
    assert len(files) == 9


def test_bundle_of_one_plugin_has_nothing_of_another(store, tmp_path):
    write_bundle(store, tmp_path / "out", ["two"])
    assert [m.id for m in read_layout(tmp_path / "out")] == ["two"]
    assert len(list((tmp_path / "out" / "blobs" / "sha256").iterdir())) == 3


def test_unknown_plugin_names_the_nearest(store, tmp_path):
    with pytest.raises(InputError, match="nothing of 'tow' is complete") as caught:
        write_bundle(store, tmp_path / "out", ["tow", "one"])
    assert caught.value.hint == "did you mean 'two'?"
    assert not (tmp_path / "out").exists()


def test_folder_that_is_there_is_not_touched(store, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="exists"):
        write_bundle(store, tmp_path / "out")
    with pytest.raises(InputError, match="is no folder"):
        write_bundle(store, tmp_path / "nowhere" / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_no_store_and_an_empty_one_are_said(make_store, tmp_path):
    with pytest.raises(InputError, match="is no store"):
        write_bundle(tmp_path / "nosuch", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    make_store(tmp_path / "empty")
    with pytest.raises(InputError, match="nothing is complete"):
        write_bundle(tmp_path / "empty", tmp_path / "out")


@pytest.mark.parametrize("fault", ["changed", "cut", "gone"])
def test_blob_that_is_not_what_it_should_be_leaves_no_bundle(store, tmp_path, fault):
    for blob in sorted((store / "blobs" / "sha256").iterdir()):
        good = blob.read_bytes()
        if fault == "gone":
            blob.unlink()
        else:
            blob.chmod(0o644)
            blob.write_bytes(good[:-1] + (b"" if fault == "cut" else bytes([good[-1] ^ 1])))
        with pytest.raises(PackageError) as caught:
            write_bundle(store, tmp_path / "out")
        assert caught.value.hint
        assert left(tmp_path) == []
        blob.write_bytes(good)


def test_disk_that_is_full_is_said_and_leaves_nothing(store, tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.rename", full)
    with pytest.raises(CapacityError, match="No space left"):
        write_bundle(store, tmp_path / "out")
    assert left(tmp_path) == []


@pytest.fixture
async def quarantined(store):
    """Of three packages one is in quarantine for good, one until 1000."""
    one, two, _ = read_layout(store)
    world = await SqliteWorld.open(store.parent / "world.db")
    await world.transact(
        lambda _: [
            Put(Quarantine(one.digest, "one", 1, "CRASHED", "it crashed", 1, 0.0)),
            Put(Quarantine(two.digest, "one", 2, "CRASHED", "it crashed", 1, 0.0, until_s=1000.0)),
        ]
    )
    yield world
    await world.close()


@pytest.mark.anyio
async def test_builds_in_quarantine_are_left_out_unless_they_are_asked_for(store, tmp_path, quarantined):
    world = store.parent / "world.db"
    assert set(quarantine_now(world, wall_s=999.0).values()) == {"CRASHED: it crashed"}
    held = quarantine_now(world, wall_s=999.0)
    bundled = write_bundle(store, tmp_path / "a", left_out=held)
    assert [(m.id, m.rev) for m in read_layout(tmp_path / "a")] == [("two", 7)]
    assert [(m.id, m.rev) for m in bundled.left_out] == [("one", 1), ("one", 2)]
    held = quarantine_now(world, wall_s=1000.0)
    write_bundle(store, tmp_path / "b", left_out=held)
    assert [(m.id, m.rev) for m in read_layout(tmp_path / "b")] == [("one", 2), ("two", 7)]
    assert [(m.id, m.rev) for m in write_bundle(store, tmp_path / "c").manifests] == [
        ("one", 1),
        ("one", 2),
        ("two", 7),
    ]


@pytest.mark.anyio
async def test_plugin_with_nothing_but_quarantined_builds_is_refused_with_what_to_do(store, tmp_path, quarantined):
    held = quarantine_now(store.parent / "world.db", wall_s=0.0)
    with pytest.raises(InputError, match="everything complete of 'one' is in quarantine") as caught:
        write_bundle(store, tmp_path / "out", ["one", "two"], left_out=held)
    assert "--with-quarantined" in caught.value.hint
    assert not (tmp_path / "out").exists()


@pytest.mark.anyio
async def test_command_says_what_it_leaves_out(store, tmp_path, capsys, quarantined):
    config = tmp_path / "host.yaml"
    config.write_text("apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: state\n")
    bundle_command(tmp_path / "a", (), config, as_json=False)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1].startswith("2 packages, ")
    assert printed.err.splitlines() == [
        f"left out: one 1.0.0 rev 1 {next(iter(read_layout(store))).digest}: in quarantine, CRASHED: it crashed"
    ]
    bundle_command(tmp_path / "b", (), config, as_json=True)
    page = json.loads(capsys.readouterr().out)
    assert [(left["plugin"], left["rev"]) for left in page["left_out"]] == [("one", 1)]
    bundle_command(tmp_path / "c", (), config, as_json=True, with_quarantined=True)
    page = json.loads(capsys.readouterr().out)
    assert (len(page["packages"]), page["left_out"]) == (3, [])


def test_command_prints_what_is_in_it(store, tmp_path, capsys):
    config = tmp_path / "host.yaml"
    config.write_text("apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: state\n")
    bundle_command(tmp_path / "a", (), config, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines[:3]] == [
        ["one", "1.0.0", "rev", "1"],
        ["one", "2.0.0", "rev", "2"],
        ["two", "7.0.0", "rev", "7"],
    ]
    assert lines[3].startswith("3 packages, ")
    bundle_command(tmp_path / "b", ("two",), config, as_json=True)
    page = json.loads(capsys.readouterr().out)
    assert [package["plugin"] for package in page["packages"]] == ["two"]
