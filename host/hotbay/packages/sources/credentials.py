"""Who the host is to a remote source: secrets in files, read again at each use so that they can be exchanged.

A secret is in no message, no log and no address. Where nobody may read along, is the caller's to check.
"""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread

from hotbay.errors import PackageError
from hotbay.store.files import open_regular

_SECRET_LIMIT_BYTES: Final = 16 << 10

__all__ = ["Credentials"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user with a file that holds the password, or a file that holds a token, or nothing."""

    username: str | None = None
    password_file: Path | None = None
    token_file: Path | None = None

    @property
    def is_empty(self) -> bool:
        return self.username is None and self.token_file is None

    async def basic(self) -> str | None:
        """Value of `Authorization` for user and password; None without a user. Raises PackageError FETCH_FAILED."""
        if self.username is None:
            return None
        password = "" if self.password_file is None else await anyio.to_thread.run_sync(_secret, self.password_file)
        return "Basic " + base64.b64encode(f"{self.username}:{password}".encode()).decode()

    async def bearer(self) -> str | None:
        """Value of `Authorization` for the token; None without one. Raises PackageError FETCH_FAILED."""
        if self.token_file is None:
            return None
        token = await anyio.to_thread.run_sync(_secret, self.token_file)
        if not token.isascii() or not token.isprintable() or not token:
            raise _unusable(self.token_file, "holds no token: one line of printable ASCII is expected")
        return f"Bearer {token}"


def _secret(file: Path) -> str:
    """The file's text without the line's end that editors add."""
    with open_regular(file) as opened:
        content = opened.read(_SECRET_LIMIT_BYTES + 1)
    if len(content) > _SECRET_LIMIT_BYTES:
        raise _unusable(file, f"has more than {_SECRET_LIMIT_BYTES} bytes")
    try:
        return content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise _unusable(file, "is no UTF-8 text") from None


def _unusable(file: Path, message: str) -> PackageError:
    return PackageError(
        "FETCH_FAILED", f"{file} {message}", hint="Correct the file; it is read again at the next attempt."
    )
