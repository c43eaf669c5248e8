"""What authors raise and what the SDK answers for them.

`describe` and `fault_of` never raise, whatever the exception object does: only cut plain text of it
crosses the wire, never the object.
"""

from __future__ import annotations

from hotbay_sdk import _lazy
from hotbay_sdk.protocol.messages import MAX_MESSAGE_BYTES, CallError, ErrorCode, Executed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class ParameterError(Exception):
    """A plugin ref's parameters cannot be used.

    Raise it from a `parse` function or from a type's `__init__`; the operator sees path and message.

    Args:
        path: the bad field, such as `weights.queue` or `rules[2].name`; empty for the whole map.
        message: what was expected and what was found.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


class UndeclaredReadError(Exception):
    """A plugin type read something that it does not declare, so it never crossed to this process.

    Args:
        name: what was read, such as `endpoint.waiting`.
        type_name: the plugin type that read it.
        declare: the argument of `Plugin.type` that has to list it: `reads` or `consumes`.
    """

    def __init__(self, name: str, type_name: str, declare: str = "reads") -> None:
        super().__init__(f'type {type_name} reads {name}: add it to the type\'s declaration, {declare}=["{name}"]')
        self.name = name
        self.type_name = type_name
        self.declare = declare


class HostCallError(Exception):
    """The host did not do what an instance asked it for.

    Args:
        code: a code of the protocol, such as UNAVAILABLE (not granted), RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED, or CANCELLED
            when the hot call that asked is over.
        message: the reason, as the host tells it.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class BadResultError(Exception):
    """An author's method returned what its extension point does not take; names expected and found."""


class CallFailedError(Exception):
    """A call is answered with `error` instead of a result."""

    def __init__(self, error: CallError) -> None:
        super().__init__(error.message)
        self.error = error


class Failed:
    """The outcome of an author's method that raised."""

    __slots__ = ("fault",)

    def __init__(self, fault: BaseException) -> None:
        self.fault = fault


def attempt(job: Callable[..., object], *arguments: object) -> object:
    """Run the author's code; what it raised comes as `Failed`. SystemExit passes: it ends the process."""
    try:
        return job(*arguments)
    except SystemExit:
        raise
    except BaseException as fault:  # noqa: BLE001  # named boundary: authors may raise anything
        return Failed(fault)


def describe(fault: BaseException) -> str:
    """Type name and text of `fault`, at most `MAX_MESSAGE_BYTES` of UTF-8."""
    name = type(fault).__name__
    try:
        text = str.__str__(str(fault))
    except BaseException as failure:  # noqa: BLE001  # an author's __str__ may raise anything at all
        text = f"<its text cannot be had: {type(failure).__name__}>"
    whole = f"{name}: {text[:MAX_MESSAGE_BYTES]}" if text else name
    return str.encode(whole, "utf-8", "replace")[:MAX_MESSAGE_BYTES].decode("utf-8", "ignore")


def fault_of(fault: BaseException, *, with_traceback: bool = True) -> CallError:
    """The error that answers for an exception of an author's code."""
    if isinstance(fault, CallFailedError):
        return fault.error
    if isinstance(fault, BadResultError):
        return CallError(ErrorCode.BAD_RESULT, str(fault), executed=Executed.YES)
    return CallError(
        ErrorCode.PLUGIN_ERROR,
        describe(fault),
        executed=Executed.YES,
        details={"type": type(fault).__name__[:256].encode("utf-8", "replace").decode()},
        traceback=_lazy.traceback_text(fault) if with_traceback else "",
    )
