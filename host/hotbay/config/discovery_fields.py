"""Reads the parameters of one discovery field by field: names, addresses, ports, durations, labels. Pure."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from hotbay.config.forms import Form
from hotbay.config.picker_config import PickerConfig, PluginEntry
from hotbay.config.quantities import QuantityError, parse_duration_s
from hotbay.config.wording import Path, Value

__all__ = ["DiscoveryFields"]

_MAX_PORT: Final = 65535
_HOST_NAME: Final = re.compile(r"(?=.{1,253}\.?\Z)[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?\Z")
_NAMESPACE: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?\Z")
_SERVER: Final = re.compile(r"(?:\[(?P<bracketed>[^\]]+)\]|(?P<plain>[^:\[\]]+)):(?P<port>[0-9]{1,5})\Z")
_URL: Final = re.compile(
    r"(?=.{1,2048}\Z)https?://(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<host>[A-Za-z0-9_.-]{1,253}))"
    r"(?::(?P<port>[0-9]{1,5}))?(?:[/?][!\"$-~]*)?\Z"
)
"""Printable throughout; neither user nor fragment."""

_T = TypeVar("_T")


class DiscoveryFields:
    """Reads the fields of one instance's parameters; what is wrong is in the form."""

    def __init__(self, config: PickerConfig, entry: PluginEntry) -> None:
        self.form = Form(config.document)
        self.at: Path = (*entry.path, "parameters")
        self._parameters = dict(entry.parameters)
        self._fields: Mapping[str, Value] = {}

    def fields(self, known: tuple[str, ...]) -> Mapping[str, Value]:
        self._fields = self.form.fields(self._parameters, self.at, known)
        return self._fields

    def expected(self, name: str, expected: str, value: Value) -> None:
        self.form.expected((*self.at, name), expected, value)

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        """The first choice when nothing is written, or something wrong."""
        value = self._fields.get(name, choices[0])
        if isinstance(value, str) and value in choices:
            return value
        self.expected(name, f"{', '.join(choices[:-1])} or {choices[-1]}", value)
        return choices[0]

    def each(self, name: str, most: int, read: Callable[[Value, Path], _T | None]) -> tuple[_T, ...]:
        items = self.form.items(self._fields.get(name), (*self.at, name))
        if len(items) > most:
            self.expected(name, f"at most {most} of them", self._fields.get(name))
            return ()
        return tuple(found for path, value in items if (found := read(value, path)) is not None)

    def host_name(self, value: Value, path: Path) -> str | None:
        # A name without a letter at its end is an address, which nobody needs to ask for.
        if isinstance(value, str) and _HOST_NAME.match(value) and ".." not in value and not _is_address(value):
            return value
        self.form.expected(path, "a full DNS name", value)
        return None

    def server(self, value: Value, path: Path) -> tuple[str, int] | None:
        if isinstance(value, str):
            found = _SERVER.match(value)
            address = (found["bracketed"] or found["plain"]) if found else value
            port = int(found["port"]) if found else 53
            if _is_address(address) and 0 < port <= _MAX_PORT:
                return address, port
        self.form.expected(
            path, "the address of a name server, with or without a port: 10.0.0.10, [fd00::10]:53", value
        )
        return None

    def port(self, name: str) -> int | None:
        value = self._fields[name]
        digits = value if isinstance(value, str) else str(value) if type(value) is int else ""
        if digits.isascii() and digits.isdigit() and len(digits) <= 5 and 0 < int(digits) <= _MAX_PORT:
            return int(digits)
        self.expected(name, f"a port from 1 to {_MAX_PORT}", value)
        return None

    def duration_s(self, name: str, default_s: float, shortest_s: float, longest_s: float) -> float:
        if name not in self._fields:
            return default_s
        value = self._fields[name]
        try:
            duration_s = parse_duration_s(value)
        except QuantityError as error:
            self.expected(name, error.expected, value)
            return default_s
        if not shortest_s <= duration_s <= longest_s:
            self.expected(name, f"a duration from {shortest_s:g}s to {longest_s:g}s", value)
        return duration_s

    def namespace(self) -> str:
        value = self._fields.get("namespace", "default")
        if isinstance(value, str) and _NAMESPACE.match(value):
            return value
        self.expected("namespace", "letters, digits, '-', '_', '.' and ':', at most 253", value)
        return ""

    def labels(self) -> tuple[tuple[str, str], ...]:
        value = self._fields.get("labels", {})
        if not isinstance(value, dict):
            self.expected("labels", "a mapping of texts", value)
            return ()
        for key, label in value.items():
            if not isinstance(label, str) or len(label) > 4096:
                self.form.expected((*self.at, "labels", key), "a text of at most 4096", label)
        return tuple(sorted((key, str(label)) for key, label in value.items()))

    def url(self) -> str:
        value = self._fields.get("url")
        expected = "http://HOST/PATH or https://HOST/PATH, without user and fragment"
        found = _URL.match(value) if isinstance(value, str) else None
        has_port = found is not None and 0 < int(found["port"] or 1) <= _MAX_PORT
        if found is not None and has_port and (found["bracketed"] is None or _is_address(found["bracketed"])):
            return str(value)
        self.expected("url", expected, value)
        return ""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
