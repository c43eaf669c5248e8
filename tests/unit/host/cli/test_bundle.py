"""A bundle is a whole layout that another host takes as a source, or it is not there."""

import json

import pytest
from hotbay.cli.bundle import bundle_command, write_bundle
from hotbay.errors import CapacityError, InputError, PackageError
from hotbay.packages.layout import read_layout


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
