"""Which texts name a machine, and which a port of one. Both go into heads of HTTP requests as they are. Pure."""

import ipaddress
import re
from typing import Final

__all__ = ["AUTHORITY_FORM", "HOST_FORM", "host_and_port", "is_authority", "is_host"]

HOST_FORM: Final = "an IP address without a zone, or a host name"
AUTHORITY_FORM: Final = "HOST:PORT, an IPv6 address in brackets"
_MAX_PORT: Final = 65535

_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST: Final = re.compile(rf"(?=.{{1,253}}\Z)(?:{_LABEL}\.)*(?P<last>{_LABEL})\.?\Z")
_ADDRESS: Final = re.compile(r"(?:\[(?P<host6>[^\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]{1,5})\Z")


def is_host(text: str) -> bool:
    """HOST_FORM; an IPv6 address without brackets."""
    name = _HOST.match(text)
    if name is not None and not name["last"].isdigit():
        return True
    try:
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def host_and_port(text: str) -> tuple[str, int] | None:
    """The parts of AUTHORITY_FORM, the port from 0; None when it is something else."""
    found = _ADDRESS.match(text)
    host = "" if found is None else found["host6"] or found["host"] or ""
    if found is None or not is_host(host) or int(found["port"]) > _MAX_PORT:
        return None
    return host, int(found["port"])


def is_authority(text: str) -> bool:
    """AUTHORITY_FORM; the port is 1 to 65535."""
    found = host_and_port(text)
    return found is not None and found[1] > 0
