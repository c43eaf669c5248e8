"""Where the socket of a host is: named by itself, by the host's configuration, or where it is by default."""

import os
import re
from pathlib import Path
from typing import Final

import orjson

from hotbay.cli.environment import environment
from hotbay.cli.files import folder_of, read_text
from hotbay.config.documents import load_document
from hotbay.config.host_config import API_VERSION, KIND, HostConfig, load_host_config
from hotbay.errors import InputError, Place, Problem

__all__ = ["admin_path", "find_socket", "read_host_config"]

_SOCKET_HINT: Final = "name the socket of the host: --socket STATE_DIR/admin.sock"
_VALUE: Final = r"""[ \t]*("[^"\n]*"|'[^'\n]*'|[^\s"'\[{#|>&*!][^\n#]*?)[ \t]*(?:[ \t]#.*)?$"""
_LINES: Final = {
    "state_dir": re.compile(rf"^[\"']?state_dir[\"']?:{_VALUE}", re.MULTILINE),
    "admin:": re.compile(rf"^\s+admin:{_VALUE}", re.MULTILINE),
}
"""Lines of a block mapping that say where a host is, by the word that they cannot do without."""
_OTHER_KIND: Final = re.compile(rf"^kind:(?![ \t]*{KIND}\b)", re.MULTILINE)


def read_host_config(file: Path | None) -> HostConfig:
    """The HostConfig in `file`; without one, what a host runs with that was given none. Raises `InputError`."""
    return _load("" if file is None else read_text(file), file)


def admin_path(config: HostConfig) -> Path:
    """The socket of the host that runs with this configuration."""
    return Path(config.state_dir) / config.listen.admin.path


def find_socket(file: Path | None) -> Path:
    """The socket of the host whose configuration is in `file`.

    A mistake elsewhere in the file is no obstacle: that is when its host is asked what is wrong. One that is no YAML any
    more is searched for the lines that say it; without any word of it the host is where one is by default. Raises
    `InputError` when the file does not say where the socket is.
    """
    try:
        return admin_path(read_host_config(file))
    except InputError as error:
        if file is None:
            raise
        try:
            return admin_path(_load(orjson.dumps(_place(file)).decode(), file))
        except InputError:
            unknown = Problem("CONFIG_INVALID", "does not say where its host is", Place(str(file)), hint=_SOCKET_HINT)
            raise InputError([*error.problems, unknown]) from error


def _unquoted(text: str) -> str:
    return text[1:-1] if text[:1] in ("'", '"') else text


def _load(text: str, file: Path | None) -> HostConfig:
    base = Path.cwd() if file is None else folder_of(file)
    name = "<no file>" if file is None else str(file)
    return load_host_config(text, file=name, base_directory=base, environment=environment(), is_root=os.geteuid() == 0)


def _place(file: Path) -> dict[str, object]:
    """A document of what in a bad one says where its host is. Raises `InputError` when that cannot be told."""
    place: dict[str, object] = {"apiVersion": API_VERSION, "kind": KIND}
    text = read_text(file)
    try:
        value = load_document(text, file=str(file)).value
    except InputError:
        if _OTHER_KIND.search(text) or any(word in text and not line.search(text) for word, line in _LINES.items()):
            raise
        found = {word: match for word, line in _LINES.items() if (match := line.search(text))}
        if "state_dir" in found:
            place["state_dir"] = _unquoted(found["state_dir"][1])
        if "admin:" in found:
            place["listen"] = {"admin": _unquoted(found["admin:"][1])}
        return place
    if not isinstance(value, dict) or value.get("kind", KIND) != KIND:
        raise InputError([Problem("CONFIG_INVALID", f"is no {KIND}", Place(str(file)))])
    if "state_dir" in value:
        place["state_dir"] = value["state_dir"]
    listen = value.get("listen")
    if isinstance(listen, dict) and "admin" in listen:
        place["listen"] = {"admin": listen["admin"]}
    return place
