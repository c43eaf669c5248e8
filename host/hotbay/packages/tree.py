"""Folders of installed files: their digest, their identity without reading them, their removal. Everything here blocks.

Whatever lies in such a folder may have been put there by a hostile process: nothing but regular files is opened, and
no link is followed.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hotbay.store.digests import Digest

__all__ = ["FileIdentity", "make_read_only", "remove_tree", "tree_bytes", "tree_digest", "tree_identity"]


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What changes when a file or folder may have changed: writing, replacing or touching it."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int


def tree_digest(root: Path) -> Digest:
    """Digest over every path below `root` with its kind and content. Modes and times do not count."""
    total = hashlib.sha256()
    for path in sorted(_below(root)):
        name = str(path.relative_to(root)).encode("utf-8", "surrogateescape")
        if path.is_symlink():
            content = b"link " + os.fsencode(path.readlink())
        elif path.is_dir():
            content = b"directory"
        elif path.is_file():
            content = b"file " + _file_digest(path)
        else:
            # Never opened: reading a named pipe would wait for a writer for ever.
            content = b"special"
        total.update(len(name).to_bytes(4, "big") + name + len(content).to_bytes(4, "big") + content)
    return Digest(f"sha256:{total.hexdigest()}")


def tree_identity(root: Path) -> dict[str, FileIdentity]:
    """Identities of everything below `root` and of `root` itself, by path. Raises OSError."""
    found = {}
    for path in (root, *_below(root)):
        state = path.lstat()
        found[str(path)] = FileIdentity(state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    return found


def tree_bytes(root: Path) -> int:
    """Sizes of all files below `root`. Raises OSError."""
    sizes = (path.lstat() for path in _below(root))
    return sum(state.st_size for state in sizes if not stat.S_ISDIR(state.st_mode))


def make_read_only(root: Path) -> None:
    """Leaves the modes 0444 and 0555 below `root`: set-id and write bits go, the execute bit stays where it was."""
    for path in _below(root):
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() or path.lstat().st_mode & 0o100 else 0o444)


def remove_tree(root: Path) -> None:
    """Removes a tree whose folders may be read-only."""
    for path in (root, *_below(root)):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(root, ignore_errors=True)


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def _below(root: Path) -> Iterable[Path]:
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            yield Path(folder) / name
