"""What few types and instances say of themselves, checked; imported for those that do."""

from __future__ import annotations

from hotbay_sdk._plugin import spelled_read
from hotbay_sdk.protocol.calls import (
    ANY_COLUMN,
    MAX_NAMES,
    MAX_READ_CHARS,
    PROMPT_HASHES,
    InstanceFacts,
    column_name,
    wildcard_of,
)
from hotbay_sdk.protocol.verdicts import RESERVED_HEADERS, is_header_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from hotbay_sdk._plugin import PluginType


def checked_claims(where: str, claims: Iterable[str]) -> tuple[str, ...]:
    """The path suffixes of a parser. Raises ValueError."""
    if isinstance(claims, str):
        raise ValueError(f'{where}: claims is a list, write ["{claims}"]')
    suffixes = tuple(dict.fromkeys(claims))
    for suffix in suffixes:
        if not suffix.startswith("/") or not suffix.isascii() or any(sign in suffix for sign in "?# "):
            raise ValueError(f"{where}: claims names {suffix!r}, expected the end of a path, such as /v1/completions")
    return suffixes


def instance_facts(made: object, spec: PluginType) -> InstanceFacts:
    """What the attributes of an instance say. Raises ValueError, whose text goes behind the type's name."""
    block_tokens = getattr(made, "block_tokens", None)
    if block_tokens is not None and (type(block_tokens) is not int or not 0 < block_tokens < 2**31):
        raise ValueError("block_tokens is a whole number above 0")
    if spec.wants_hashes and block_tokens is None:
        raise ValueError(f"its type reads {PROMPT_HASHES}, so its instances need an attribute block_tokens")
    return InstanceFacts(
        block_tokens,
        _reads(_listed(made, "reads"), spec),
        _columns(made, "consumes", spec),
        _columns(made, "optional", spec),
        _headers(made, "sets_request_headers", spec),
        _headers(made, "sets_response_headers", spec),
    )


def _listed(made: object, attribute: str) -> tuple[str, ...]:
    given = getattr(made, attribute, None)
    if given is None:
        return ()
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise ValueError(f"the attribute {attribute} is a list of names, found {type(given).__name__}")
    names = tuple(dict.fromkeys(given))
    if len(names) > MAX_NAMES:
        raise ValueError(f"the attribute {attribute} lists {len(names)} names, at most {MAX_NAMES}")
    for name in names:
        if type(name) is not str or not 0 < len(name) <= MAX_READ_CHARS:
            raise ValueError(f"the attribute {attribute} lists {ascii(name)[:80]}, expected names")
    return names


def _reads(names: tuple[str, ...], spec: PluginType) -> tuple[str, ...]:
    beside: list[str] = []
    for name in names:
        spelled = spelled_read(name)
        if spelled is None:
            raise ValueError(f"the attribute reads lists {name}, which does not exist")
        if spelled in spec.scope.reads:
            continue
        wildcard = wildcard_of(spelled)
        if wildcard is None or wildcard not in spec.declaration.reads or spelled == wildcard:
            allowed = f'reads=["{wildcard or spelled}"]'
            raise ValueError(f"the attribute reads lists {name}, which the type does not allow: declare {allowed}")
        beside.append(spelled)
    return tuple(dict.fromkeys(beside))


def _columns(made: object, attribute: str, spec: PluginType) -> tuple[str, ...]:
    beside = tuple(name for name in _listed(made, attribute) if name not in spec.scope.consumes)
    for name in beside:
        if column_name(name) is None:
            raise ValueError(f"the attribute {attribute} lists {name}, expected Key.field or Key/producer.field")
        if ANY_COLUMN not in spec.declaration.consumes:
            raise ValueError(
                f'the attribute {attribute} lists {name}, which the type does not allow: declare consumes=["{ANY_COLUMN}"]'
            )
    return beside


def _headers(made: object, attribute: str, spec: PluginType) -> tuple[str, ...]:
    names = _listed(made, attribute)
    if names and "pre_request" not in spec.methods:
        raise ValueError(f"the attribute {attribute} is that of a PreRequest")
    for name in names:
        if not is_header_name(name):
            raise ValueError(f"the attribute {attribute} lists {name!r}, expected the name of a header in lower case")
        if name in RESERVED_HEADERS:
            raise ValueError(f"the attribute {attribute} lists {name!r}, which only the host sets: leave it out")
    return names
