"""The index as bytes, for the next version of this package: version 1 of the producer's state. Pure.

Little endian: block size in tokens (u32), number of rows (u32), then for each row its endpoint's id (u16 length, UTF-8) and its
block hashes (u32 count, u64 each), least recently used first. A free row has an empty id and no hashes.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from hotbay_prefix_cache.index import PrefixIndex

VERSION: Final = 1
_HEAD: Final = struct.Struct("<II")
_ID: Final = struct.Struct("<H")
_COUNT: Final = struct.Struct("<I")


class StateRefusedError(ValueError):
    """The bytes are no index that these parameters can use."""


def pieces(index: PrefixIndex, block_tokens: int) -> Iterator[bytes]:
    """The index, one piece for each row. It may change between two pieces: a row that did is told as free."""
    ids = tuple(index.ids)
    yield _HEAD.pack(block_tokens, len(ids))
    for row, endpoint_id in enumerate(ids):
        same = row < len(index.ids) and index.ids[row] == endpoint_id
        name = endpoint_id.encode() if same else b""
        held = index.held_by(row) if same and endpoint_id else ()
        yield _ID.pack(len(name)) + name + _COUNT.pack(len(held)) + _words(array("Q", held)).tobytes()


def restored(stream: Iterable[bytes], block_tokens: int, capacity: int) -> PrefixIndex:
    """The index of `pieces`, cut anyhow, with at most `capacity` blocks a row. Raises `StateRefusedError`."""
    data = memoryview(b"".join(stream))
    try:
        found, rows = _HEAD.unpack_from(data)
        if found != block_tokens:
            raise StateRefusedError(f"its blocks have {found} tokens, ours {block_tokens}")
        return _read(data, rows, capacity)
    except (struct.error, UnicodeDecodeError) as error:
        raise StateRefusedError(f"is cut or damaged: {error}") from error


def _read(data: memoryview, rows: int, capacity: int) -> PrefixIndex:
    index, ids = PrefixIndex(), list[str]()
    held: list[memoryview] = []
    position = _HEAD.size
    for _ in range(rows):
        (length,) = _ID.unpack_from(data, position)
        position += _ID.size
        ids.append(str(data[position : position + length], "utf-8"))
        position += length
        (count,) = _COUNT.unpack_from(data, position)
        position += _COUNT.size
        held.append(data[position : position + 8 * count])
        position += 8 * count
    if position != len(data):
        raise StateRefusedError(f"is {len(data)} bytes long, expected {position}")
    index.follow(ids)
    for row, words in enumerate(held):
        hashes = array("Q")
        hashes.frombytes(words)
        if hashes:
            # `learn` notes the last block first: turned round, the least recent becomes the oldest again.
            index.learn(row, _words(hashes)[::-1], capacity)
    return index


def _words(hashes: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        hashes.byteswap()
    return hashes
