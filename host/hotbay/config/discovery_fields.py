"""Reads the parameters of one discovery field by field: names, addresses, ports, durations, labels, credentials. Pure."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from hotbay.config.endpoint_bounds import wrong_labels
from hotbay.config.forms import Form
from hotbay.config.picker_config import PickerConfig, PluginEntry
from hotbay.config.quantities import QuantityError, parse_duration_s
from hotbay.config.wording import Path, Value

__all__ = ["CREDENTIAL_FIELDS", "Credentials", "DiscoveryFields"]

CREDENTIAL_FIELDS: Final = ("authorization", "basicAuth")

_MAX_PORT: Final = 65535
# A zero in front means another base to some readers.
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}\Z")
_HOST_NAME: Final = re.compile(r"(?=.{1,253}\.?\Z)[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?\Z")
_NAMESPACE: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?\Z")
_SERVER: Final = re.compile(r"(?:\[(?P<bracketed>[^\]]+)\]|(?P<plain>[^:\[\]]+)):(?P<port>[0-9]{1,5})\Z")
_URL: Final = re.compile(
    r"(?=.{1,2048}\Z)https?://(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<host>[A-Za-z0-9_.-]{1,253}))"
    r"(?::(?P<port>[0-9]{1,5}))?(?:[/?][!\"$-~]*)?\Z"
)
"""Printable throughout; neither user nor fragment."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._~+-]{0,31}\Z")
_MAX_USER_CHARACTERS: Final = 256

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a client proves who it is: `scheme` with the text of a file, or user and password if a user is given.

    The secret is never in the configuration: `file` holds it, as written there.
    """

    scheme: str
    file: str
    user: str = ""


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
        if _PORT.match(digits) and int(digits) <= _MAX_PORT:
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
        for path, expected, found in wrong_labels(value):
            self.form.expected((*self.at, "labels", *path), expected, found)
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

    def credentials(self, url: str) -> Credentials | None:
        """What CREDENTIAL_FIELDS say, by the words of Prometheus; `url` is where they are sent, which nobody may read along."""
        given = [name for name in CREDENTIAL_FIELDS if name in self._fields]
        if not given:
            return None
        if len(given) > 1:
            message = f"`{given[0]}` and `{given[1]}` exclude each other"
            self.form.report((*self.at, given[1]), "CONFIG_INVALID", message)
        if url and not url.startswith("https:") and not _is_loopback(url):
            message = "credentials are sent by https, or to a loopback address"
            hint = "over plain http anybody on the way can read them"
            self.form.report((*self.at, "url"), "CONFIG_INVALID", message, hint=hint)
        found = self._authorization() if given[0] == "authorization" else self._basic()
        return found if len(given) == 1 else None

    def _authorization(self) -> Credentials | None:
        fields, at = self._secret_fields("authorization", ("type", "credentialsFile"), "credentials")
        file = self.form.text(fields.get("credentialsFile"), (*at, "credentialsFile"))
        scheme = fields.get("type", "Bearer")
        if not isinstance(scheme, str) or not _SCHEME.match(scheme) or scheme.lower() == "basic":
            hint = "`basicAuth` is for a user with a password"
            self.form.expected((*at, "type"), "a scheme such as Bearer", scheme, hint=hint)
            return None
        return Credentials(scheme, file) if file is not None else None

    def _basic(self) -> Credentials | None:
        fields, at = self._secret_fields("basicAuth", ("username", "passwordFile"), "password")
        file = self.form.text(fields.get("passwordFile"), (*at, "passwordFile"))
        user = fields.get("username")
        is_user = isinstance(user, str) and 0 < len(user) <= _MAX_USER_CHARACTERS and user.isprintable()
        if not isinstance(user, str) or not is_user or ":" in user:
            expected = f"a printable name of at most {_MAX_USER_CHARACTERS} characters without a colon"
            self.form.expected((*at, "username"), expected, user)
            return None
        return Credentials("Basic", file, user) if file is not None else None

    def _secret_fields(self, name: str, known: tuple[str, ...], secret: str) -> tuple[Mapping[str, Value], Path]:
        at = (*self.at, name)
        fields = self.form.fields(self._fields[name], at, (*known, secret))
        if secret in fields:
            # What stands there is not shown.
            message = "secrets do not stand in the configuration"
            hint = f"put it into a file and write `{secret}File`"
            self.form.report((*at, secret), "CONFIG_INVALID", message, hint=hint)
        return fields, at


def _is_loopback(url: str) -> bool:
    parts = _URL.match(url)
    host = (parts["bracketed"] or parts["host"]) if parts is not None else ""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
