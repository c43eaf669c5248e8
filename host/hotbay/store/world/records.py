"""The records of the world, as frozen values. Pure.

Every record has a `key`, unique within its kind. Identity of content is its digest; times are seconds since the Unix
epoch, for people to read: nothing is decided by them but the end of a quarantine.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from hotbay.store.digests import Digest

__all__ = [
    "WITHDRAWN",
    "Completion",
    "Disabled",
    "Floor",
    "Grant",
    "History",
    "Locked",
    "ManifestRef",
    "Pin",
    "Quarantine",
    "Record",
    "ref_key",
]

WITHDRAWN: Final = "WITHDRAWN"
"""Code of a quarantine that ends by itself: when a source offers the digest again."""


def ref_key(digest: str, source: str) -> str:
    """Of what one source has shown under one digest."""
    return f"{digest}@{source}"


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """One build that one source has shown. Kept when the source is silent; `offered` is false once it was withdrawn.

    `manifest` is the manifest's exact bytes, whose sha256 is `digest`; `location` is for the source alone to read.
    """

    kind: ClassVar[str] = "ref"

    plugin_id: str
    rev: int
    platform: str
    digest: Digest
    source: str
    location: str
    manifest: bytes
    channel: str = "dev"
    offered: bool = True

    @property
    def key(self) -> str:
        return ref_key(self.digest, self.source)


@dataclass(frozen=True, slots=True)
class Completion:
    """Every blob was verified and is in place, and the environment is built. Written last.

    `environment` is the name of the environment's folder, `tree` the digest of what was built there.
    """

    kind: ClassVar[str] = "completion"

    digest: Digest
    plugin_id: str
    rev: int
    blobs: tuple[tuple[Digest, int], ...]
    environment: str
    tree: str
    at_s: float

    @property
    def key(self) -> str:
        return self.digest


@dataclass(frozen=True, slots=True)
class Grant:
    """What the operator allows a plugin to do."""

    kind: ClassVar[str] = "grant"

    plugin_id: str
    capabilities: tuple[str, ...]
    who: str
    at_s: float

    @property
    def key(self) -> str:
        return self.plugin_id


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A digest that is not run: why, how often it came to that, and until when (None: until it is cleared)."""

    kind: ClassVar[str] = "quarantine"

    digest: Digest
    plugin_id: str
    rev: int
    code: str
    reason: str
    count: int
    at_s: float
    until_s: float | None = None

    @property
    def key(self) -> str:
        return self.digest


@dataclass(frozen=True, slots=True)
class Pin:
    """The operator's choice of one revision or one digest: exactly one of them is given."""

    kind: ClassVar[str] = "pin"

    plugin_id: str
    rev: int | None
    digest: Digest | None
    who: str
    at_s: float

    @property
    def key(self) -> str:
        return self.plugin_id


@dataclass(frozen=True, slots=True)
class Disabled:
    """A plugin that the operator has stopped."""

    kind: ClassVar[str] = "disabled"

    plugin_id: str
    who: str
    at_s: float

    @property
    def key(self) -> str:
        return self.plugin_id


@dataclass(frozen=True, slots=True)
class Floor:
    """The highest revision of a plugin that was ever complete here."""

    kind: ClassVar[str] = "floor"

    plugin_id: str
    rev: int

    @property
    def key(self) -> str:
        return self.plugin_id


@dataclass(frozen=True, slots=True)
class Locked:
    """One line of the lock file that was applied: with any of them in the world, nothing else is selected."""

    kind: ClassVar[str] = "locked"

    plugin_id: str
    platform: str
    digest: Digest
    rev: int
    signer: str

    @property
    def key(self) -> str:
        return f"{self.plugin_id}/{self.platform}"


@dataclass(frozen=True, slots=True)
class History:
    """What became live, when, why and at whose wish. `number` counts from 1 for each plugin."""

    kind: ClassVar[str] = "history"

    plugin_id: str
    number: int
    digest: Digest
    rev: int
    version: str
    generation: int
    at_s: float
    why: str
    who: str

    @property
    def key(self) -> str:
        return f"{self.plugin_id}/{self.number:012d}"


Record = ManifestRef | Completion | Grant | Quarantine | Pin | Disabled | Floor | Locked | History
