"""Where packages come from: the `sources` of a HostConfig. Pure.

A source has exactly one place: a folder of packages, an OCI layout on disk, a static web folder, a registry, or what
an extension of the host knows. The source `bundled` may leave it out: it is what comes with the host.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from hotbay.config.documents import Document
from hotbay.config.host_fields import FilePath, Name, PositiveDuration, RemoteUrl, Section, Token
from hotbay.config.wording import Path, not_supported, path_text
from hotbay.errors import Problem

__all__ = ["BUNDLED", "Auth", "Source", "source_conflicts"]

BUNDLED: Final = "bundled"
_PLACES: Final = ("directory", "oci_layout", "http", "registry", "extension")
_REMOTE: Final = ("http", "registry")


class Auth(Section):
    """Who the host is to a remote source. Secrets are in files, read at each use, never in the configuration."""

    username: Name | None = None
    password_file: FilePath | None = None
    token_file: FilePath | None = None


class Source(Section):
    """A place that packages come from.

    `fetch`: follow it, look once, or run on what the state directory holds. `store`: keep what it showed in the
    world, or only in memory. `copy`: copy blobs into the store, or use verified local ones in place. `withdrawn`:
    what happens to a running version that the source no longer offers.
    """

    name: Token
    directory: Annotated[FilePath | None, Field(validate_default=False)] = None
    oci_layout: FilePath | None = None
    http: RemoteUrl | None = None
    registry: (
        Annotated[str, Field(min_length=3, max_length=512, pattern=r"^[^\s@]+(@sha256:[0-9a-f]{64})?$")] | None
    ) = None
    extension: Token | None = None
    options: Mapping[Name, str] = {}
    dev: bool = True
    fetch: Literal["watch", "once", "off"] = "watch"
    store: bool = True
    copy_blobs: bool = Field(default=True, alias="copy")
    withdrawn: Literal["keep", "alarm", "stop"] = "keep"
    auth: Auth = Auth()
    ca_file: FilePath | None = None
    poll_s: PositiveDuration = Field(default=30.0, alias="poll")

    @model_validator(mode="before")
    @classmethod
    def _empty_directory_is_absent(cls, value: object) -> object:
        if isinstance(value, dict) and value.get("directory") == "":
            return {key: item for key, item in value.items() if key != "directory"}
        return value

    @property
    def place_kind(self) -> str:
        """Which of the places is given; `bundled` for none."""
        return next((kind for kind in _PLACES if getattr(self, kind) is not None), BUNDLED)


def source_conflicts(source: Source, path: Path, document: Document) -> Iterator[Problem]:
    """Find what is wrong between the fields of one source."""
    given = [kind for kind in _PLACES if getattr(source, kind) is not None]
    if not given and source.name != BUNDLED:
        message = f"a source other than {BUNDLED!r} needs one of {', '.join(_PLACES)}"
        yield Problem("CONFIG_INVALID", message, document.place(path), path_text(path))
    for kind in given[1:]:
        yield _conflict((*path, kind), f"`{given[0]}` and `{kind}` exclude each other", document)
    if not source.dev:
        hint = "no signature is checked: write `dev: true`, and use only sources that you trust"
        yield not_supported((*path, "dev"), document.key_place((*path, "dev")), hint)
    if source.options and source.extension is None:
        yield _conflict((*path, "options"), "`options` are for an `extension`", document)
    if not source.copy_blobs and not set(given) <= {"directory", "oci_layout"}:
        yield _conflict((*path, "copy"), "`copy: false` needs a `directory` or an `oci_layout`", document)
    yield from _remote_conflicts(source, path, document)


def _remote_conflicts(source: Source, path: Path, document: Document) -> Iterator[Problem]:
    auth = source.auth
    if source.place_kind not in _REMOTE:
        for field, is_given in (("auth", auth != Auth()), ("ca_file", source.ca_file is not None)):
            if is_given:
                yield _conflict((*path, field), f"`{field}` is for a source that is `http` or a `registry`", document)
    if (auth.username is None) != (auth.password_file is None):
        yield _conflict((*path, "auth"), "`username` and `password_file` go together", document)
    if auth.token_file is not None and auth.username is not None:
        yield _conflict((*path, "auth"), "`token_file` and `username` exclude each other", document)


def _conflict(path: Path, message: str, document: Document) -> Problem:
    return Problem("CONFIG_INVALID", message, document.key_place(path), path_text(path))
