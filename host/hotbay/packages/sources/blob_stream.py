"""One blob from a web server, from any byte on: asks for a range, and takes what the server makes of it.

A server may know no ranges, ignore the condition, or answer with another range than was asked for. What comes back says
truly where it starts; when that cannot be told, or the content is another one, the blob is asked for from zero.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hotbay.packages.sources.headers import is_strong, range_start, same_entity
from hotbay.packages.sources.source import BlobStream
from hotbay.packages.sources.web import Answer, WebClient, refused

__all__ = ["open_blob_stream"]


@asynccontextmanager
async def open_blob_stream(
    client: WebClient, url: str, size: int, *, start: int = 0, validator: str | None = None
) -> AsyncIterator[BlobStream]:
    """Contract as `Source.open_blob`. Nothing is asked for where nothing is left to read.

    Without a validator the range is asked for without a condition: names of blobs say their content, and whoever
    reads checks it.
    """
    if start >= size > 0:
        yield BlobStream(size, _nothing(), validator)
        return
    if start > 0:
        headers = {"Range": f"bytes={start}-"}
        if validator is not None and is_strong(validator):
            headers["If-Range"] = validator
        async with client.open("GET", url, headers) as answer:
            begin = _begin(answer, start, validator)
            if begin is not None:
                yield BlobStream(begin, answer.chunks, answer.headers.get("etag"))
                return
    async with client.open("GET", url) as answer:
        if answer.status != 200:
            raise refused(answer)
        yield BlobStream(0, answer.chunks, answer.headers.get("etag"))


def _begin(answer: Answer, asked: int, validator: str | None) -> int | None:
    """Where the answer starts, or None if it is of no use. Raises PackageError FETCH_FAILED if no other would be."""
    if answer.status == 200:
        return 0
    if answer.status == 416:
        return None
    if answer.status != 206:
        raise refused(answer)
    begin = range_start(answer.headers.get("content-range"))
    if begin is None or begin > asked:
        return None
    tag = answer.headers.get("etag")
    is_other = tag is not None and validator is not None and not same_entity(tag, validator)
    return None if is_other else begin


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
