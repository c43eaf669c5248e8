"""What a look at a file found: its bytes, or why there are none. Pure."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FileContent", "content_digest"]


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file's bytes, or why there are none."""

    path: Path
    data: bytes | None
    error: str = ""

    @property
    def digest(self) -> str:
        """Identity of the content; of a file that cannot be read, of the reason."""
        return content_digest(self.data) if self.data is not None else f"unreadable: {self.error}"


def content_digest(data: bytes) -> str:
    """Return the digest that contents are compared by."""
    return hashlib.sha256(data).hexdigest()
