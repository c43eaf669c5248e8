"""A page as it lies in a buffer: read in place, because copying a hundred kilobytes costs more than reading them. Pure."""

from dataclasses import dataclass

__all__ = ["PageText"]


@dataclass(frozen=True, slots=True)
class PageText:
    """The bytes of `buffer` from `start` to `end`. The byte before `start` is a line feed: every line has one in front."""

    buffer: bytes | bytearray
    start: int
    end: int

    @classmethod
    def of(cls, body: bytes) -> "PageText":
        """A page that lies somewhere else, copied."""
        return cls(b"\n" + body, 1, len(body) + 1)

    def __bytes__(self) -> bytes:
        return bytes(memoryview(self.buffer)[self.start : self.end])

    def __len__(self) -> int:
        return self.end - self.start
