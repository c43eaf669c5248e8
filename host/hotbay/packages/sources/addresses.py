"""Addresses of remote sources: which are accepted, where a redirect may lead, where a secret may travel. Pure.

Rules: a redirect never leads from https to http; secrets travel over https or inside this machine only; an address
carries no secret itself, because addresses are shown and logged.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

import httpx

from hotbay.store.digests import Digest, parse_digest

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_REPOSITORY: Final = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
# As distribution's own limit on a name.
_REPOSITORY_LIMIT: Final = 255

__all__ = [
    "Origin",
    "RegistryReference",
    "base_url",
    "is_registry_reference",
    "origin_of",
    "parse_reference",
    "redirect_target",
    "shown",
]


@dataclass(frozen=True, slots=True)
class Origin:
    """Whom a request goes to."""

    scheme: str
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return _is_loopback(self.host)

    @property
    def may_see_secrets(self) -> bool:
        """Whether nobody on the way reads along."""
        return self.scheme == "https" or self.is_loopback


@dataclass(frozen=True, slots=True)
class RegistryReference:
    """A repository in a registry; at most one of `tag` and `digest` (of an image or index there) narrows it."""

    registry_url: str
    repository: str
    tag: str | None = None
    digest: Digest | None = None

    @property
    def url(self) -> str:
        """Root of the repository's part of the API, without a slash at its end."""
        return f"{self.registry_url}/v2/{self.repository}"

    def __str__(self) -> str:
        suffix = f":{self.tag}" if self.tag else f"@{self.digest}" if self.digest else ""
        return f"{self.registry_url.partition('://')[2]}/{self.repository}{suffix}"


def base_url(text: str) -> str:
    """A folder's address, with a slash at its end. Raises ValueError that names the broken rule."""
    url = _absolute(text)
    if url.query or url.fragment or "?" in text or "#" in text:
        raise ValueError("must be a folder's address, without query and fragment")
    return str(url).rstrip("/") + "/"


def origin_of(url: str) -> Origin:
    """Raises ValueError for what is no address of a web server."""
    parsed = _absolute(url)
    return Origin(parsed.scheme, parsed.host, parsed.port or _DEFAULT_PORTS[parsed.scheme])


def redirect_target(current: str, location: str) -> str:
    """Where to go on from `current`. Raises ValueError for a target that would weaken the transport or is no address."""
    try:
        target = str(httpx.URL(current).join(location))
    except (httpx.InvalidURL, ValueError) as error:
        raise ValueError(f"its target is no address: {error}") from None
    here, there = origin_of(current), origin_of(target)
    if here.scheme == "https" and there.scheme != "https":
        raise ValueError("its target is not https")
    if there.is_loopback and not here.is_loopback:
        raise ValueError("its target is inside this machine")
    return target


def shown(url: str) -> str:
    """The address without its query, which is where signed addresses carry their secret."""
    return url.partition("?")[0]


def is_registry_reference(text: str) -> bool:
    """Whether it can only be meant as a registry: the first part of a path names a host by a dot or a port."""
    host, slash, _ = text.partition("/")
    explicit = text.startswith(("http://", "https://"))
    return explicit or (bool(slash) and (host == "localhost" or ":" in host or "." in host.strip(".")))


def parse_reference(text: str) -> RegistryReference:
    """Reads `[SCHEME://]HOST[:PORT]/NAME[:TAG|@DIGEST]`. Without a scheme it is https, and http inside this machine.

    Raises ValueError that names the broken rule.
    """
    scheme, has_scheme, rest = text.rpartition("://")
    host, slash, path = rest.partition("/")
    if not slash or not host or not path:
        raise ValueError("must be HOST/NAME, such as registry.example/plugins/scorer")
    name, has_digest, digest_text = path.partition("@")
    name, has_tag, tag = name.partition(":")
    if has_digest and has_tag:
        raise ValueError("may have a tag or a digest, not both")
    if len(name) > _REPOSITORY_LIMIT or not _REPOSITORY.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is no repository: lower-case letters, digits, and single . _ - / between them")
    if has_tag and not _TAG.fullmatch(tag):
        raise ValueError(f"{tag[:80]!r} is no tag")
    if not has_scheme:
        scheme = "http" if _is_loopback(_absolute(f"https://{host}").host) else "https"
    registry = base_url(f"{scheme}://{host}").rstrip("/")
    return RegistryReference(registry, name, tag or None, parse_digest(digest_text) if has_digest else None)


def _absolute(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ValueError(f"is no address: {error}") from None
    if url.scheme not in _DEFAULT_PORTS or not url.host:
        raise ValueError("must begin with http:// or https:// and name a host")
    if url.userinfo:
        raise ValueError("must not carry a user or password; name files with them under `auth`")
    return url


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
