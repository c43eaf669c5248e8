"""Errors of calls, between the wire and the host. Pure."""

from typing import Final

from hotbay_sdk.protocol import CallError, ErrorCode, ValueRefusedError

from hotbay.errors import CapacityError, HostError, PluginFault

__all__ = ["UnsendableError", "fault_from_wire", "unsendable"]


class UnsendableError(CapacityError):
    """The arguments fit into no frame, or nest too deep for one: what a request carries, no fault of the plugin."""


_CAPACITY: Final = frozenset({ErrorCode.RESOURCE_EXHAUSTED, ErrorCode.UNAVAILABLE})


def unsendable(error: ValueRefusedError) -> UnsendableError:
    """The host's error for an argument that cannot cross."""
    return UnsendableError("FRAME_TOO_LARGE", f"an argument cannot cross the wire: {error}")


def fault_from_wire(error: CallError, label: str) -> HostError:
    """The host's error for what a plugin answered."""
    details = {"executed": str(error.executed), "traceback": error.traceback, **error.details}
    kind = CapacityError if error.code in _CAPACITY else PluginFault
    return kind(str(error.code), f"{label}: {error.message}", details=details)
