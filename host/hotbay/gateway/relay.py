"""An answer on its way to the client: its head rewritten, its body framed anew.

Invariant: what the head says of the connection holds at the end, also when a drain began in between.
"""

from collections.abc import Mapping

from hotbay.gateway.head import NO_EDITS, Framing, response_framing, response_head
from hotbay.gateway.response_reader import ResponseReader
from hotbay.gateway.turn import Turn

__all__ = ["Relay"]


class Relay:
    """One answer. `status` is 0 until it begins; `ttft_s` None until its first body byte came."""

    __slots__ = ("_framing", "_turn", "_via", "keeps_alive", "sent_bytes", "status", "ttft_s")

    def __init__(self, turn: Turn, via: bytes) -> None:
        self._turn = turn
        self._via = via
        self._framing = Framing.NONE
        self.keeps_alive = False
        self.status = 0
        self.sent_bytes = 0
        self.ttft_s: float | None = None

    def begin(self, reader: ResponseReader, destination: str, edits: Mapping[bytes, bytes | None] = NO_EDITS) -> bytes:
        """The head, which `pass_on` sends with what there is of the body."""
        wire = self._turn.wire
        self.status = reader.status
        self._framing = response_framing(reader.status, reader.length, http_1_0=wire.http_1_0)
        self.keeps_alive = self._turn.keep_alive and self._framing is not Framing.CLOSE
        return response_head(
            reader.status,
            reader.reason,
            reader.headers,
            framing=self._framing,
            length=reader.length,
            keep_alive=self.keeps_alive,
            http_1_0=wire.http_1_0,
            request_id=self._turn.request_id,
            destination=destination,
            via=self._via,
            edits=edits,
        )

    def pass_on(self, reader: ResponseReader, head: bytes = b"") -> None:
        """Send what the reader has, which it then has no more."""
        out = [head]
        parts = reader.parts
        if not self._turn.head_only:
            if parts and self._framing is Framing.CHUNKED:
                out.append(b"%x\r\n" % sum(map(len, parts)))
                out += parts
                out.append(b"\r\n")
            else:
                out += parts
            if reader.ended and self._framing is Framing.CHUNKED:
                out.append(b"0\r\n\r\n")
        parts.clear()
        data = b"".join(out)
        self.sent_bytes += len(data)
        if data:
            self._turn.client.write(data)

    def came(self) -> float | None:
        """A part of the body came; `ttft_s` if it is the first."""
        if self.ttft_s is not None:
            return None
        self.ttft_s = self._turn.elapsed_s
        return self.ttft_s
