"""Which endpoints a label selector means, in Kubernetes' equality form: `zone=a,tier!=test,gpu,!spot`. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hotbay.errors import InputError, Problem

__all__ = ["LabelSelector", "read_selector"]

_PART: Final = re.compile(
    r"(?P<not>!)?(?P<key>[A-Za-z0-9](?:[A-Za-z0-9_./-]*[A-Za-z0-9])?)(?:(?P<op>==?|!=)(?P<value>[^,=!]*))?"
)


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All of `parts` have to hold: (key, value, wanted), where value None asks whether the key is there."""

    parts: tuple[tuple[str, str | None, bool], ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether they all hold. As in Kubernetes, `key!=value` holds without the key."""
        return all(
            (key in labels if value is None else labels.get(key) == value) is wanted
            for key, value, wanted in self.parts
        )


def read_selector(text: str) -> LabelSelector:
    """Read a selector.

    Raises:
        InputError: CONFIG_INVALID, naming the part that is none.
    """
    parts: list[tuple[str, str | None, bool]] = []
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if found is None or (found["not"] and found["op"]):
            expected = "KEY=VALUE, KEY!=VALUE, KEY or !KEY, separated by commas"
            hint = "`hotbay endpoints -o json` shows the labels of each endpoint"
            raise InputError(
                [Problem("CONFIG_INVALID", "not a label selector", None, "selector", expected, part[:80], hint)]
            )
        value = None if found["op"] is None else found["value"].strip()
        parts.append((found["key"], value, not found["not"] and found["op"] != "!="))
    return LabelSelector(tuple(parts))
