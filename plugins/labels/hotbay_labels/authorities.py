"""Addresses as headers list them. Pure."""

from collections.abc import Iterable


def split_authority(text: str) -> tuple[str, str]:
    """Host and port of `HOST`, `HOST:PORT`, `[HOST]:PORT` or a bare IPv6 address; the port is "" where there is none."""
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        host, port = text, ""
    return host.removeprefix("[").removesuffix("]"), port


def selected(header: str, authorities: Iterable[str]) -> list[bool]:
    """Which of the addresses the header's list means: a host alone means all of its ports.

    As the reference's `header-based-testing-filter`, which knows one port of a host alone.
    """
    items = {split_authority(item.strip()) for item in header.split(",") if item.strip()}
    split = map(split_authority, authorities)
    return [bool(host) and ((host, port) in items or (host, "") in items) for host, port in split]
