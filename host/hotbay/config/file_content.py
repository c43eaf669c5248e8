"""What a look at a file found: its bytes, or why there are none. Pure."""

import errno
import hashlib
from dataclasses import dataclass
from pathlib import Path

from hotbay.config.documents import decode_text
from hotbay.errors import InputError, Place, Problem

__all__ = ["FileContent", "content_digest"]

_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file's bytes, or why there are none."""

    path: Path
    data: bytes | None
    error: str = ""
    errno: int | None = None
    """The system's number of the error, where it is one."""

    @property
    def digest(self) -> str:
        """Identity of the content; of a file that cannot be read, of the reason."""
        return content_digest(self.data) if self.data is not None else f"unreadable: {self.error}"

    def text(self, *, hint: str) -> str:
        """The bytes as text. Raises `InputError` when they are none, or when there are none: then with the hint.

        Its code is RESOURCE_EXHAUSTED when that is no fault of the file.
        """
        if self.data is None and self.errno in _NO_DESCRIPTOR:
            hint = "raise the limit of open files (ulimit -n) and repeat"
            message = f"cannot be read now: {self.error}"
            raise InputError([Problem("RESOURCE_EXHAUSTED", message, Place(str(self.path)), hint=hint)])
        if self.data is None:
            message = f"cannot be read: {self.error}"
            raise InputError([Problem("CONFIG_INVALID", message, Place(str(self.path)), hint=hint)])
        return decode_text(self.data, file=str(self.path))


def content_digest(data: bytes) -> str:
    """Return the digest that contents are compared by."""
    return hashlib.sha256(data).hexdigest()
