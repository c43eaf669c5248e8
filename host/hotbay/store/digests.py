"""Names of content: `sha256:<64 lower-case hex digits>`. Pure."""

import hashlib
import re
from typing import Final, NewType

Digest = NewType("Digest", str)

DIGEST_PATTERN: Final = r"^sha256:[0-9a-f]{64}$"
_FORM: Final = re.compile(r"sha256:[0-9a-f]{64}")

__all__ = ["DIGEST_PATTERN", "Digest", "digest_of", "hex_of", "parse_digest"]


def digest_of(content: bytes) -> Digest:
    return Digest(f"sha256:{hashlib.sha256(content).hexdigest()}")


def hex_of(digest: Digest) -> str:
    """The hex digits alone: a safe file name, because every `Digest` was made or checked here."""
    return parse_digest(digest).removeprefix("sha256:")


def parse_digest(text: str) -> Digest:
    """Checks the form. Raises ValueError; any other algorithm than sha256 is refused."""
    if not _FORM.fullmatch(text):
        raise ValueError(f"expected sha256:<64 hex digits>, found {text[:80]!r}")
    return Digest(text)
