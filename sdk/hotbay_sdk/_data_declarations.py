"""What types of the data layer declare, checked; imported for packages that have one."""

from __future__ import annotations

from hotbay_sdk._points import DATA_POINTS
from hotbay_sdk.protocol.handshake import (
    ATTRIBUTE_KINDS,
    MAX_ATTRIBUTE_CHARS,
    MAX_ATTRIBUTES,
    MAX_INTERVAL_MS,
    MAX_NAME_CHARS,
    MAX_NAMES,
    MAX_PAYLOAD_CHARS,
    MIN_INTERVAL_MS,
    DataDeclaration,
    is_attribute_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

POLLED = ("metrics", "models", "json", "text", "bytes")
"""What polls bring."""
ENDPOINT_EVENTS = "endpoint"
OBJECT_EVENTS = "object:"
_CO_ASYNC = 0x280
"""`inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR`."""


def checked(
    where: str,
    cls: type,
    points: Collection[str],
    payload: str,
    families: Iterable[str],
    attributes: Mapping[str, str] | None,
    default_source: str,
    interval_s: float,
) -> DataDeclaration:
    """The declaration of a type with these points. Raises ValueError and TypeError, as `Plugin.type` says."""
    mine = DATA_POINTS.intersection(points)
    if not mine:
        raise ValueError(
            f"{where}: payload, families, attributes, default_source and interval_s are an extractor's or a source's"
        )
    for point in ("discover", "watch"):
        if point in mine and _is_async(cls, point):
            raise TypeError(f"{where}: {point} is no async method: it runs in a thread of its own")
    _check_payload(where, mine, payload)
    made = dict(attributes or {})
    _check_attributes(where, made, extracts=bool(mine & {"extract", "event_extract"}))
    names = _checked_families(where, families, of_pages="extract" in mine and payload == "metrics")
    if default_source and ("extract" not in mine or len(default_source) > MAX_NAME_CHARS):
        raise ValueError(f"{where}: default_source is the type of the source of an Extractor")
    return DataDeclaration(payload, names, made, default_source, _interval_ms(where, mine, interval_s))


def _is_async(cls: type, name: str) -> bool:
    code = getattr(getattr(cls, name), "__code__", None)
    return bool(getattr(code, "co_flags", 0) & _CO_ASYNC)


def _check_payload(where: str, points: Collection[str], payload: str) -> None:
    for point, base in (("extract", "an Extractor"), ("poll", "a PollingSource")):
        if point in points and payload not in POLLED:
            raise ValueError(f"{where}: payload {payload!r} of {base}, expected one of {', '.join(POLLED)}")
    if {"event_extract", "source"} & set(points) and not _is_of_events(payload):
        raise ValueError(f"{where}: payload {payload!r} of events, expected endpoint or object:GROUP/VERSION/KIND")
    if "watch" in points and (payload == ENDPOINT_EVENTS or not _is_of_events(payload)):
        raise ValueError(f"{where}: payload {payload!r} of a WatchSource, expected object:GROUP/VERSION/KIND")
    if payload and set(points) == {"discover"}:
        raise ValueError(f"{where}: a Discovery is given no payload")


def _is_of_events(payload: str) -> bool:
    if payload == ENDPOINT_EVENTS:
        return True
    parts = payload.removeprefix(OBJECT_EVENTS).split("/")
    return (
        payload.startswith(OBJECT_EVENTS) and len(parts) == 3 and all(parts[1:]) and len(payload) <= MAX_PAYLOAD_CHARS
    )


def _check_attributes(where: str, attributes: Mapping[str, str], *, extracts: bool) -> None:
    if extracts is not bool(attributes) or len(attributes) > MAX_ATTRIBUTES:
        raise ValueError(
            f"{where}: an extractor, and nothing else, names what it may return in attributes, at most {MAX_ATTRIBUTES}"
        )
    for name, kind in attributes.items():
        if not is_attribute_name(name):
            raise ValueError(
                f"{where}: attribute {name!r}, expected 1 to {MAX_ATTRIBUTE_CHARS} letters, digits and _ . : / -"
            )
        if kind not in ATTRIBUTE_KINDS:
            raise ValueError(f"{where}: attribute {name} of kind {kind!r}, expected {', '.join(ATTRIBUTE_KINDS)}")


def _interval_ms(where: str, points: Collection[str], interval_s: float) -> int:
    if not interval_s:
        return 0
    if "poll" not in points or not MIN_INTERVAL_MS <= interval_s * 1000 <= MAX_INTERVAL_MS:
        raise ValueError(
            f"{where}: interval_s is a PollingSource's, {MIN_INTERVAL_MS / 1000:g} to {MAX_INTERVAL_MS // 1000} seconds, "
            f"found {interval_s!r}"
        )
    return round(interval_s * 1000)


def _checked_families(where: str, families: Iterable[str], *, of_pages: bool) -> tuple[str, ...]:
    if isinstance(families, str):
        raise ValueError(f'{where}: families is a list, write ["{families}"]')
    names = tuple(dict.fromkeys(families))
    if bool(names) is not of_pages or len(names) > MAX_NAMES:
        raise ValueError(f"{where}: an Extractor of payload metrics names its families, at most {MAX_NAMES}")
    for name in names:
        if not 0 < len(name) <= MAX_NAME_CHARS or not name.isascii():
            raise ValueError(f"{where}: {name!r} is no name of a sample")
    return names
