"""Which parser a path belongs to: the one with the longest claim that the path ends with, of equal ones the first listed.

Pure. A parser that claims nothing takes every other path and ends the list: what is listed after it is never asked. A
list without one leaves paths unclaimed. The claims of the host's own parsers stand in their modules; those of a package
come with the list.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hotbay.gateway.parsers import anthropic, openai, passthrough, vllmhttp
from hotbay.gateway.parsers.form import Form

__all__ = ["BUILTIN_PARSERS", "DEFAULT_PARSERS", "Claimed", "ParserTable"]

BUILTIN_PARSERS: Final[Mapping[str, Mapping[str, Form]]] = {
    openai.TYPE: openai.CLAIMS,
    anthropic.TYPE: anthropic.CLAIMS,
    vllmhttp.TYPE: vllmhttp.CLAIMS,
    passthrough.TYPE: {"": passthrough.FORM},
}
"""The host's own parsers by type: path suffix → form."""
DEFAULT_PARSERS: Final = tuple(("", name) for name in BUILTIN_PARSERS)
"""Those of a configuration that lists none, in the reference's order."""


class Claimed(NamedTuple):
    """Who parses: a form of the host's own, or, without one, the plugin ref."""

    ref: str
    form: Form | None


class ParserTable:
    """Parsers by path, made once for a list of (path suffix, ref).

    A built-in parser is one pair, of "" and its type; a parser of a package one pair for each of its claims, or one with
    "" if it has none.
    """

    def __init__(self, listed: Sequence[tuple[str, str]] = DEFAULT_PARSERS) -> None:
        self._claims: dict[str, Claimed] = {}
        self._fallback: Claimed | None = None
        for suffix, ref in listed:
            if self._fallback is not None:
                break
            forms = BUILTIN_PARSERS.get(ref) if not suffix else None
            for claim, form in forms.items() if forms is not None else ((suffix, None),):
                if claim:
                    self._claims.setdefault(claim, Claimed(ref, form))
                else:
                    self._fallback = Claimed(ref, form)
        # Longest first: the first that fits is the one. A path that is a claim as it stands needs no search.
        self._suffixes = sorted(self._claims.items(), key=lambda item: -len(item[0]))
        usual = {path: self._found(path) for path in (f"/v1{claim}" for claim in self._claims)}
        self._known = self._claims | {path: found for path, found in usual.items() if found is not None}

    def find(self, path: str) -> Claimed | None:
        """Who parses what is sent to `path`; None if nobody claims it."""
        return self._known.get(path) or self._found(path) or self._fallback

    def _found(self, path: str) -> Claimed | None:
        for suffix, claimed in self._suffixes:
            if path.endswith(suffix):
                return claimed
        return None
