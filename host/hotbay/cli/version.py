"""What `hotbay version` prints."""

from importlib.metadata import version

from hotbay_sdk.protocol import PROTOCOL_VERSION


def version_line() -> str:
    """Versions of host, SDK and wire protocol."""
    return f"hotbay {version('hotbay')} (hotbay-sdk {version('hotbay-sdk')}, protocol {PROTOCOL_VERSION})"
