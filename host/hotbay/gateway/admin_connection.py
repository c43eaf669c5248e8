"""A client's connection to the admin socket, for the commands and the demo. Blocks."""

import http.client
import socket
from pathlib import Path

from hotbay.gateway.admin_socket import connect_private

__all__ = ["AdminConnection"]

_CONNECT_TIMEOUT_S = 5.0


class AdminConnection(http.client.HTTPConnection):
    """HTTP over a host's socket; `answer_timeout_s` is for each wait for bytes. Raises `OSError` like its parent."""

    def __init__(self, path: Path, answer_timeout_s: float) -> None:
        super().__init__("hotbay", timeout=answer_timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket at the path."""
        self.sock: socket.socket = connect_private(self._path, _CONNECT_TIMEOUT_S)
        self.sock.settimeout(self.timeout)
        # An answer that ends with the connection takes `sock` away; the file beneath it is still this one's.
        self._wire = self.sock

    def wait_without_end(self) -> None:
        """Take silence for no fault from here on."""
        self._wire.settimeout(None)
