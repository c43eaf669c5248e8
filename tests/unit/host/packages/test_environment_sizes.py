"""How many bytes environments have is asked for again and again: each is measured once."""

from pathlib import Path

from hotbay.packages.environment import Environments


def test_an_environment_is_measured_once_and_forgotten_when_it_is_gone(tmp_path: Path) -> None:
    first, second = tmp_path / "aa", tmp_path / "bb"
    for folder, size in ((first, 10), (second, 20)):
        folder.mkdir()
        (folder / "file").write_bytes(b"x" * size)
    environments = Environments(tmp_path)
    assert environments.present() == {"aa": 10, "bb": 20}
    # Nobody writes there; this shows that nobody looks again either.
    (first / "file").write_bytes(b"")
    assert environments.present() == {"aa": 10, "bb": 20}
    (second / "file").unlink()
    second.rmdir()
    assert environments.present() == {"aa": 10}
    second.mkdir()
    assert environments.present() == {"aa": 10, "bb": 0}
