"""What a `source_watch` call tells, read out of its data: records of objects of one kind. Pure.

`["upsert", object]`, `["delete", key]`, `["ready"]`. What is no record ends the run, and so do more bytes than a source may have;
an object that cannot be used is told, with its place, and costs nothing else. Objects are kept packed: decoded, what a plugin
sends may take eighty times the room.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hotbay_sdk.protocol import Value
from hotbay_sdk.protocol.values import Encoder, unpack

from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.remote.framing import RecordFrames
from hotbay.datalayer.remote.records import Gone, Named, RecordOf, Refused, Told
from hotbay.datalayer.sources.object_form import read_key
from hotbay.errors import PluginFault, Problem

__all__ = ["MAX_OBJECTS_BYTES", "ObjectReader", "PackedObject"]

MAX_OBJECTS_BYTES: Final = 64 << 20
"""Of all objects of one run together: 6 KiB for each of 10,000, which is how many `runs` takes."""
_MAX_KEY_CHARS: Final = 512
_REFUSED_COST: Final = 10
_BYTES_OF_COST: Final = 4096


@dataclass(frozen=True, slots=True)
class PackedObject:
    """An object by its key, as its document crosses."""

    id: str
    body: bytes

    def document(self) -> dict[str, object]:
        """The document, made anew: the caller's own."""
        value = unpack(self.body)
        assert isinstance(value, dict), "what is kept was packed from a map"
        return dict(value)

    def says_the_same(self, other: "PackedObject | None") -> bool:
        """Whether both are the same document, in whatever order its fields stand."""
        if other is None:
            return False
        return self.body == other.body or self.document() == other.document()


class ObjectReader:
    """The records of one run.

    `cost` is what the last record counts: its bytes and whether it was refused are the host's work, too.

    Args:
        name: what problems call the source.
        kind: of every object.
    """

    def __init__(self, name: str, kind: ObjectKind) -> None:
        self.cost = 0
        self._name = name
        self._kind = kind
        self._frames = RecordFrames(name)
        self._encoder = Encoder()
        self._sizes: dict[str, int] = {}
        self._total_bytes = 0

    def feed(self, data: bytes) -> Iterator[RecordOf[PackedObject]]:
        """The records that `data` completes, in order. Raises `PluginFault` BAD_RESULT where they are none, or too many."""
        for value in self._frames.feed(data):
            record = self._record(value)
            self.cost = 1 + self._frames.length // _BYTES_OF_COST
            self.cost += _REFUSED_COST if isinstance(record, Refused) else 0
            yield record

    def _record(self, value: Value) -> RecordOf[PackedObject]:
        match value:
            case ["upsert", dict() as document]:
                return self._object(document)
            case ["delete", str() as key]:
                self._size(key, 0)
                return Gone(key[:_MAX_KEY_CHARS])
            case ["ready"]:
                return Told()
        raise PluginFault("BAD_RESULT", f"{self._name}: a record is no upsert of a map, delete of a key, or ready")

    def _object(self, document: dict[str, Value]) -> Named[PackedObject] | Refused:
        key, problems = read_key(document, self._kind, name=self._name)  # type: ignore[arg-type]  # bytes, which no file has, are refused like any other value
        if problems:
            wrong = problems[0]
            message = f"{self._name}: an object is refused: {key or 'without a name'}"
            hint = "have the plugin tell objects of the kind that its type declares, each with a name"
            problem = Problem(wrong.code, message, None, wrong.path, wrong.expected, wrong.found, hint)
            return Refused(key, problem)
        packed = PackedObject(key, self._encoder.pack(document))
        self._size(key, len(packed.body))
        if self._total_bytes > MAX_OBJECTS_BYTES:
            raise PluginFault(
                "BAD_RESULT", f"{self._name} names objects of more than {MAX_OBJECTS_BYTES >> 20} MiB in all"
            )
        return Named(packed)

    def _size(self, key: str, size: int) -> None:
        """From now on the object takes so much; 0: it is gone."""
        self._total_bytes += size - self._sizes.pop(key, 0)
        if size:
            self._sizes[key] = size
