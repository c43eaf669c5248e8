"""The operator's word over discovery's: which endpoints are cordoned or weighed by command, kept in the state directory.

The file holds all of it or what it held before, so it survives whatever ends the host, and a successor reads it. It is
written first and obeyed afterwards. An endpoint that is gone keeps its entry: it may come back. The functions are pure but
for `OverrideFile`, which blocks; one host at a time writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

import orjson

from hotbay.datalayer.endpoint import EndpointState
from hotbay.errors import CapacityError, InputError, Problem
from hotbay.store.files import write_durably

__all__ = ["OVERRIDES_FILE", "Override", "OverrideFile", "Overrides", "decoded", "encoded", "with_word"]

OVERRIDES_FILE: Final = "endpoints.json"
_VERSION: Final = 1
_FILE_LIMIT_BYTES: Final = 8 << 20
"""Forty thousand entries: more than a host has endpoints."""
_TOO_MANY: Final = (
    "nothing was changed; take back what was said of endpoints that are gone, which `hotbay endpoints` lists last: "
    "`hotbay endpoints uncordon ID...` and `hotbay endpoints weight default ID...`"
)


@dataclass(frozen=True, slots=True)
class Override:
    """What the operator said of one endpoint, None where nothing. `who` said it last, `at_s` seconds since the epoch."""

    state: EndpointState | None = None
    weight: float | None = None
    who: str = ""
    at_s: float = 0.0


Overrides = Mapping[str, Override]
"""By endpoint id; nobody is in it who has neither a state nor a weight."""


def with_word(overrides: Overrides, words: Overrides) -> Overrides:
    """The same with these in place of what was; one without state and weight is taken back."""
    merged = {**overrides, **words}
    return MappingProxyType(
        {one: word for one, word in merged.items() if word.state is not None or word.weight is not None}
    )


def encoded(overrides: Overrides) -> bytes:
    """The file's content, the same for the same words."""
    entries = [
        {"id": one, "state": word.state, "weight": word.weight, "who": word.who, "at_s": word.at_s}
        for one, word in sorted(overrides.items())
    ]
    return orjson.dumps(
        {"version": _VERSION, "endpoints": entries}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    )


def decoded(content: bytes) -> Overrides:
    """Undo `encoded`.

    Raises:
        ValueError: this is no such file, with what is wrong.
    """
    document = orjson.loads(content)
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError(f"expected a JSON object with version {_VERSION}")
    entries = document.get("endpoints")
    if not isinstance(entries, list):
        raise ValueError("endpoints: expected a list")
    return with_word({}, dict(_entry(number, entry) for number, entry in enumerate(entries)))


def _entry(number: int, entry: object) -> tuple[str, Override]:
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
        raise ValueError(f"endpoints[{number}]: expected an object with an id")
    state, weight = entry.get("state"), entry.get("weight")
    if state is not None and state not in list(EndpointState):
        raise ValueError(f"endpoints[{number}].state: expected active or cordoned, found {state!r}")
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if weight is not None and not (is_number and 0 <= weight <= 1):
        raise ValueError(f"endpoints[{number}].weight: expected a number from 0 to 1, found {weight!r}")
    who, at_s = entry.get("who"), entry.get("at_s")
    return entry["id"], Override(
        None if state is None else EndpointState(state),
        None if weight is None else float(cast(float, weight)),
        who if isinstance(who, str) else "",
        float(at_s) if isinstance(at_s, int | float) else 0.0,
    )


class OverrideFile:
    """The file in a state directory. Both methods block."""

    def __init__(self, root: Path) -> None:
        self.path = root / OVERRIDES_FILE

    def read(self) -> Overrides:
        """What it holds; nothing without a file.

        Raises:
            InputError: it cannot be read, or is damaged.
        """
        try:
            with self.path.open("rb") as file:
                content = file.read(_FILE_LIMIT_BYTES + 1)
            if len(content) > _FILE_LIMIT_BYTES:
                raise ValueError(f"it is larger than {_FILE_LIMIT_BYTES} bytes")
            return decoded(content)
        except FileNotFoundError:
            return MappingProxyType({})
        except (OSError, ValueError) as error:
            hint = "put a copy of the file back, or remove it and cordon or weigh again what it held"
            message = f"{self.path} does not hold the operator's cordons and weights: {error}"
            raise InputError([Problem("CONFIG_INVALID", message, hint=hint)]) from error

    def write(self, overrides: Overrides) -> None:
        """Make it hold these.

        Raises:
            InputError: these are more than a start reads.
            CapacityError: UNAVAILABLE, it cannot be written.
            It holds what it held in either case.
        """
        content = encoded(overrides)
        if len(content) > _FILE_LIMIT_BYTES:
            expected, found = (
                f"at most {_FILE_LIMIT_BYTES} bytes",
                f"{len(content)} bytes for {len(overrides)} endpoints",
            )
            problem = Problem(
                "CONFIG_INVALID", f"{self.path} would be too large to be read again", None, "", expected, found
            )
            raise InputError([replace(problem, hint=_TOO_MANY)])
        try:
            write_durably(self.path, content)
        except OSError as error:
            hint = "see that the state directory is writable and has room; nothing was changed"
            raise CapacityError(
                "UNAVAILABLE", f"cannot write {self.path}: {error.strerror or error}", hint=hint
            ) from error
