"""Refs inside a process: what it is to make, and what its answer to `configure` says of them. Pure.

What a plugin says is checked and cut to a length before it stands in an error.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hotbay_sdk.protocol import MalformedMessageError, Value
from hotbay_sdk.protocol.calls import InstanceFacts

from hotbay.errors import Place, PluginFault

__all__ = ["MAX_BLOCK_TOKENS", "CreatedRef", "RefSpec", "block_tokens", "configured", "instance_facts", "ref_error"]

MAX_BLOCK_TOKENS: Final = 65536
"""Largest hash block an instance may ask for: 256 KiB of prompt."""


NO_FACTS: Final = InstanceFacts()

_INDEX: Final = re.compile(r"\[([0-9]{1,9})\]")


@dataclass(frozen=True, slots=True)
class RefSpec:
    """A ref to create inside a process. Where it stands in the operator's file makes no difference.

    `needs` are those that it may look up while it is made: another one of them is another ref. `at` says where a path inside
    its parameters stands.
    """

    name: str
    type: str
    parameters: Mapping[str, object]
    place: Place | None = field(default=None, compare=False)
    needs: tuple["RefSpec", ...] = ()
    at: Callable[[tuple[str | int, ...]], Place] | None = field(default=None, compare=False)

    def place_of(self, path: str) -> Place | None:
        """Where the field stands that a plugin calls by this path, such as `plugins[2].threshold`; at least where the ref does."""
        return self.place if self.at is None else self.at(_parts(path, self.parameters))


@dataclass(frozen=True, slots=True)
class CreatedRef:
    """A ref that exists inside a process; it is used from `Instance.install` on."""

    spec: RefSpec
    handle: int
    block_tokens: int | None
    facts: InstanceFacts = NO_FACTS


def _parts(path: str, parameters: object) -> tuple[str | int, ...]:
    """The path's steps as far as they lead into the parameters: keys may have dots and brackets in them."""
    parts: list[str | int] = []
    value = parameters
    while path:
        path = path.removeprefix(".")
        index = _INDEX.match(path)
        if isinstance(value, list) and index is not None and int(index[1]) < len(value):
            parts.append(int(index[1]))
            value, path = value[int(index[1])], path[index.end() :]
        elif isinstance(value, Mapping):
            keys = [key for key in value if _goes_on(path, str(key))]
            if not keys:
                break
            key = max(keys, key=len)
            parts.append(key)
            value, path = value[key], path[len(key) :]
        else:
            break
    return tuple(parts)


def _goes_on(path: str, key: str) -> bool:
    return path.startswith(key) and path[len(key) : len(key) + 1] in ("", ".", "[")


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


def instance_facts(ref: RefSpec, facts: Value) -> InstanceFacts:
    """What a ref says of itself, because it depends on its parameters. Raises `PluginFault` BAD_RESULT naming the ref.

    A size of blocks that is out of range counts as none.
    """
    if facts is None:
        return NO_FACTS
    try:
        return InstanceFacts.from_wire(
            {**facts, "block_tokens": block_tokens(facts)} if isinstance(facts, dict) else facts
        )
    except MalformedMessageError as error:
        raise PluginFault(
            "BAD_RESULT",
            f"configure: what '{ref.name}' of type '{ref.type}' says of itself: {error}",
            hint="`reads`, `consumes`, `optional`, `sets_request_headers` and `sets_response_headers` of an instance are "
            "lists of names",
        ) from error


def ref_error(refs: Mapping[int, RefSpec], error: Value) -> str:
    """One per-handle error as text. What is the plugin's word in it is cut to a length."""
    if not isinstance(error, dict):
        return "an error without a place"
    handle = error.get("handle")
    number = handle[1] if isinstance(handle, list) and len(handle) == 2 else None
    ref = refs.get(number) if type(number) is int else None
    path = str(error.get("path", ""))[:200]
    message = str(error.get("message", ""))[:600]
    place = ref.place_of(path) if ref is not None else None
    where = f"{place}: " if place is not None else ""
    name = ref.name if ref is not None else "?"
    return f"{where}plugins '{name}': parameters{'.' if path else ''}{path}: {message}"
