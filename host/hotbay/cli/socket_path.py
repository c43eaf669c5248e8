"""Where the socket of a host is: named by itself, by the host's configuration, or where it is by default."""

import os
from pathlib import Path

import orjson

from hotbay.cli.environment import environment
from hotbay.cli.files import read_text
from hotbay.config.documents import load_document
from hotbay.config.host_config import API_VERSION, KIND, HostConfig, load_host_config
from hotbay.errors import InputError

__all__ = ["admin_path", "find_socket", "read_host_config"]


def read_host_config(file: Path | None) -> HostConfig:
    """The HostConfig in `file`; without one, what a host runs with that was given none. Raises `InputError`."""
    return _load("" if file is None else read_text(file), file)


def admin_path(config: HostConfig) -> Path:
    """The socket of the host that runs with this configuration."""
    return Path(config.state_dir) / config.listen.admin.path


def find_socket(file: Path | None) -> Path:
    """The socket of the host whose configuration is in `file`.

    A mistake elsewhere in the file is no obstacle: that is when its host is asked what is wrong. Raises `InputError`
    when the file does not say where the socket is.
    """
    try:
        return admin_path(read_host_config(file))
    except InputError:
        place = _place(file) if file is not None else None
        if place is None:
            raise
        return admin_path(_load(orjson.dumps(place).decode(), file))


def _load(text: str, file: Path | None) -> HostConfig:
    base = Path.cwd() if file is None else file.resolve().parent
    name = "<no file>" if file is None else str(file)
    return load_host_config(text, file=name, base_directory=base, environment=environment(), is_root=os.geteuid() == 0)


def _place(file: Path) -> dict[str, object] | None:
    """What of a bad document says where its host is; None when that cannot be told."""
    try:
        value = load_document(read_text(file), file=str(file)).value
    except InputError:
        return None
    if not isinstance(value, dict) or value.get("kind") != KIND:
        return None
    place: dict[str, object] = {"apiVersion": API_VERSION, "kind": KIND}
    if "state_dir" in value:
        place["state_dir"] = value["state_dir"]
    listen = value.get("listen")
    if isinstance(listen, dict) and "admin" in listen:
        place["listen"] = {"admin": listen["admin"]}
    return place
