"""Images, audio and video in chat messages, as one hash each. Pure.

Understood are content parts with a `type` and, under that name or the usual one, what they hold: `image_url`, `input_audio`,
`audio_url`, `video_url`, `input_image`, `image`, `audio`, `video`, as chat APIs spell them. Anything else holds no item. The same
content gives the same hash, whichever part it is in; nothing of it can be read from the hash.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Final

MEDIA: Final = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "audio": "audio",
    "video_url": "video",
    "input_video": "video",
    "video": "video",
}
"""Kind of a part → what it shows."""
_HOLDERS: Final = ("image_url", "audio_url", "video_url", "input_audio", "source")
"""Where a part holds its content if not under its own kind."""
_CONTENTS: Final = ("url", "data", "uuid", "file_id")
"""Of a content that is a map: the first of these says which it is."""
_HASH_BYTES: Final = 8
MAX_ITEMS: Final = 256
"""Media of one request that are looked at: clients choose their number, and each of them costs a look at every endpoint."""


def media_hashes(messages: Iterable[object]) -> tuple[int, ...]:
    """Hashes of the first `MAX_ITEMS` items, each once, in the order of their first appearance."""
    contents = islice(_contents(messages), MAX_ITEMS)
    return tuple(dict.fromkeys(_hash(kind, content) for kind, content in contents))


def _contents(messages: Iterable[object]) -> Iterator[tuple[str, str]]:
    for message in messages:
        parts = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(parts, list):
            continue
        for part in parts:
            kind = part.get("type") if isinstance(part, Mapping) else None
            if isinstance(kind, str) and kind in MEDIA:
                content = _content(part, kind)
                if content:
                    yield MEDIA[kind], content


def _content(part: Mapping[str, object], kind: str) -> str:
    for holder in (kind, *_HOLDERS):
        value = part.get(holder)
        if isinstance(value, str):
            return value
        if isinstance(value, Mapping):
            found = next((value[name] for name in _CONTENTS if isinstance(value.get(name), str)), "")
            return found if isinstance(found, str) else ""
    return ""


def _hash(kind: str, content: str) -> int:
    digest = blake2b(f"{kind}\0".encode(), digest_size=_HASH_BYTES)
    digest.update(content.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "little")
