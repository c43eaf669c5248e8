"""The records of a call that goes on: its data, cut into records, each a length (u32, big endian) and one value. Pure."""

import struct
from collections.abc import Iterator
from typing import Final

from hotbay_sdk.protocol import Value, ValueRefusedError
from hotbay_sdk.protocol.values import unpack_checked

from hotbay.errors import PluginFault

__all__ = ["MAX_RECORD_BYTES", "RecordFrames"]

MAX_RECORD_BYTES: Final = 64 * 1024
_LENGTH: Final = struct.Struct(">I")


class RecordFrames:
    """Of one run. `name` is what problems call the plugin; `length` is the bytes of the value that was given last."""

    def __init__(self, name: str) -> None:
        self.length = 0
        self._name = name
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Value]:
        """The values that `data` completes, in order. Raises `PluginFault` BAD_RESULT where they are none."""
        self._data += data
        while len(self._data) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data)
            if length > MAX_RECORD_BYTES:
                raise PluginFault("BAD_RESULT", f"{self._name}: a record of {length} bytes, at most {MAX_RECORD_BYTES}")
            end = _LENGTH.size + length
            if len(self._data) < end:
                return
            body = bytes(self._data[_LENGTH.size : end])
            del self._data[:end]
            try:
                value = unpack_checked(body)
            except ValueRefusedError as error:
                raise PluginFault("BAD_RESULT", f"{self._name}: a record cannot be read: {error}") from error
            self.length = length
            yield value
