"""Refs inside a process: what it is to make, and what its answer to `configure` says of them. Pure.

What a plugin says is checked and cut to a length before it stands in an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hotbay_sdk.protocol import Value

from hotbay.errors import Place, PluginFault

__all__ = ["MAX_BLOCK_TOKENS", "CreatedRef", "RefSpec", "block_tokens", "configured", "ref_error"]

MAX_BLOCK_TOKENS: Final = 65536
"""Largest hash block an instance may ask for: 256 KiB of prompt."""


@dataclass(frozen=True, slots=True)
class RefSpec:
    """A ref to create inside a process. Where it stands in the operator's file makes no difference."""

    name: str
    type: str
    parameters: Mapping[str, object]
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CreatedRef:
    """A ref that exists inside a process; it is used from `Instance.install` on."""

    spec: RefSpec
    handle: int
    block_tokens: int | None


def configured(answer: Value) -> tuple[dict[str, Value], list[Value]]:
    """Facts of the refs that were made, by handle as text, and the errors. Raises `PluginFault` BAD_RESULT."""
    if not isinstance(answer, dict):
        raise PluginFault("BAD_RESULT", "configure: expected {instances, errors}")
    instances, errors = answer.get("instances", {}), answer.get("errors", [])
    if not isinstance(instances, dict) or not isinstance(errors, list):
        raise PluginFault("BAD_RESULT", "configure: expected {instances, errors}")
    return instances, errors


def block_tokens(facts: Value) -> int | None:
    """Tokens of the blocks that a ref wants its prompts hashed in; None also for a number that is out of range."""
    tokens = facts.get("block_tokens") if isinstance(facts, dict) else None
    return tokens if type(tokens) is int and 0 < tokens <= MAX_BLOCK_TOKENS else None


def ref_error(refs: Mapping[int, RefSpec], error: Value) -> str:
    """One per-handle error as text. What is the plugin's word in it is cut to a length."""
    if not isinstance(error, dict):
        return "an error without a place"
    handle = error.get("handle")
    number = handle[1] if isinstance(handle, list) and len(handle) == 2 else None
    ref = refs.get(number) if type(number) is int else None
    path = str(error.get("path", ""))[:200]
    message = str(error.get("message", ""))[:600]
    where = f"{ref.place}: " if ref is not None and ref.place is not None else ""
    name = ref.name if ref is not None else "?"
    return f"{where}plugins '{name}': parameters{'.' if path else ''}{path}: {message}"
