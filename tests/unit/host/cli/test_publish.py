"""What `hotbay publish` takes and prints."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hotbay.cli.publish import publish
from hotbay.errors import InputError
from hotbay.packages.layout import write_layout
from hotbay.packages.manifest import Blob, Manifest, ProtocolRange
from hotbay.store.digests import digest_of

NAME = "sample-1.0-py3-none-any.whl"


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Of the package in the folder `built`."""
    (tmp_path / NAME).write_bytes(b"content")
    manifest = Manifest(
        id="sample",
        publisher="tests",
        rev=7,
        version="1.2.3",
        platform="python-cp311-linux-x86_64",
        entrypoint="sample:plugin",
        types=("sample-scorer",),
        protocol=ProtocolRange(first=1, last=1),
        blobs=(Blob(name=NAME, digest=digest_of(b"content"), size=7),),
    )
    write_layout(tmp_path / "built", manifest, {NAME: tmp_path / NAME})
    return manifest


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(publish, [str(argument) for argument in arguments])
    if isinstance(result.exception, InputError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def test_it_says_what_is_where_now(manifest: Manifest, tmp_path: Path) -> None:
    entry = tmp_path / "watched" / "sample-7-python-cp311-linux-x86_64"

    first = run(tmp_path / "built", tmp_path / "watched")
    again = run(tmp_path / "built", tmp_path / "watched")

    assert first.startswith(f"sample 1.2.3 rev 7 {manifest.digest} -> {entry} ({entry.name}): ")
    assert first.endswith("bytes sent\n")
    assert again.endswith(": already there\n")


def test_it_says_it_in_json(manifest: Manifest, tmp_path: Path) -> None:
    [row] = json.loads(run(tmp_path / "built", tmp_path / "layout", "--layout", "-o", "json"))

    assert (row["digest"], row["rev"], row["was_there"]) == (manifest.digest, 7, False)
    assert (tmp_path / "layout" / "oci-layout").is_file()


@pytest.mark.parametrize(
    "options",
    [["--username", "u"], ["--password-file", "F"], ["--username", "u", "--password-file", "F", "--token-file", "F"]],
)
def test_credentials_that_do_not_go_together_are_refused(
    manifest: Manifest, tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "F").write_text("x")
    given = [str(tmp_path / "F") if option == "F" else option for option in options]

    assert "--username" in run(tmp_path / "built", "reg.example/a", *given, code=2)


def test_secrets_are_not_sent_where_somebody_reads_along(manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / "F").write_text("x")

    with pytest.raises(InputError, match="must be https"):
        run(tmp_path / "built", "http://reg.example/a", "--token-file", tmp_path / "F")
