"""What the host knows of the body at one path: what has to be there, and where its prompts stand. Pure.

Only what the router needs is checked; everything else in a body is the model server's to judge.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from hotbay.gateway.answers import Refusal
from hotbay.scheduling.prompts import ReadPrompts

__all__ = ["Check", "Form", "ModelName", "Payload", "accept", "no_prompts", "refuse_without"]

Payload: TypeAlias = Mapping[str, object]
Check: TypeAlias = Callable[[Payload], Refusal | None]


class ModelName(enum.Enum):
    """Whether a body names its model."""

    REQUIRED = "required"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class Form:
    """The body at one path.

    Args:
        check: says why a JSON object is not such a body; None when it is one.
        read: makes the prompts of one that is.
        fields: where the prompts stand, besides `messages`. Lists and objects in these may be 16 levels deep.
        takes_ids: whether a list in these may be token ids, which are one prompt.
        model: whether `model` has to be there.
        is_read: False: the body is forwarded as it is, whatever it is.
    """

    check: Check
    read: ReadPrompts
    fields: tuple[str, ...] = ()
    model: ModelName = ModelName.REQUIRED
    is_read: bool = True
    takes_ids: bool = True


def accept(payload: Payload) -> Refusal | None:
    """Nothing has to be there."""
    return None


def no_prompts(payload: Payload) -> tuple[str, ...]:
    """A body without prompts."""
    return ()


_TEXT_OR_LIST: Final = "must be a string or a non-empty list"


def refuse_without(code: str, *fields: str, texts: bool = True) -> Check:
    """Refuse a body in which none of the fields is a non-empty list, or with `texts` a string; the first is named."""
    kinds = (str, list) if texts else (list,)
    message = f"`{fields[0]}` {_TEXT_OR_LIST if texts else 'must be a non-empty list'}."

    def check(payload: Payload) -> Refusal | None:
        for field in fields:
            value = payload.get(field)
            if isinstance(value, kinds) and value != []:
                return None
        return Refusal(400, code, message)

    return check
