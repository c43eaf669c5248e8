"""Every import that happens later than start, each with its reason.

A plugin's start is measured against a bare interpreter's: what only some plugins need, or what is
needed only after READY, is imported when first used.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from hotbay_sdk._async import AsyncRunner

MAX_TRACEBACK_CHARS = 16 * 1024


def traceback_text(fault: BaseException) -> str:
    """Frames of `fault`, innermost last; the tail of at most `MAX_TRACEBACK_CHARS` characters.

    The exception object itself is never rendered: its `__str__` is the author's code.
    """
    import traceback  # linecache and tokenize: only when something failed

    return "".join(traceback.format_tb(fault.__traceback__, limit=-50))[-MAX_TRACEBACK_CHARS:]


def nearest(name: str, known: Sequence[str]) -> str:
    """The known name most like `name`, or an empty string."""
    import difflib  # only to word an error

    found = difflib.get_close_matches(name, known, n=1)
    return found[0] if found else ""


def seeded_random(seed: str) -> Random:
    """A generator with a state of its own."""
    import random  # hashlib and bisect: only for types that draw

    return random.Random(seed)  # noqa: S311  # repeatable draws are the purpose


def dataclass_from(kind: type, parameters: Mapping[str, object]) -> object:
    """Strictly build a parameter dataclass."""
    from hotbay_sdk._parameters import parse_dataclass  # dataclasses imports inspect; needed after READY only

    return parse_dataclass(kind, parameters)


def is_dataclass_type(kind: object) -> bool:
    """Whether `kind` is a dataclass, told without importing dataclasses."""
    return isinstance(kind, type) and hasattr(kind, "__dataclass_fields__")


def async_runner() -> AsyncRunner:
    """A thread with an asyncio loop."""
    from hotbay_sdk._async import AsyncRunner  # asyncio costs several starts; only for types with async methods

    return AsyncRunner()


def attribute_of(entrypoint: str) -> object:
    """Import `module:attribute`."""
    module, _, attribute = entrypoint.partition(":")
    __import__(module)  # importlib would add itself and warnings to every start
    found: object = getattr(sys.modules[module], attribute)
    return found
