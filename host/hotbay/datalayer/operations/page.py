"""One endpoint as commands show it: what it is, what the operator said, what requests and scrapes say. Pure; reads only.

The word for its state is said here for every page that shows one.
"""

from collections.abc import Mapping
from typing import Final

from hotbay.datalayer.attributes import AttributeMap
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState
from hotbay.datalayer.health.state import Health, Phase
from hotbay.datalayer.health.watch import HealthWatch
from hotbay.datalayer.operations.overrides import Override
from hotbay.datalayer.operator_labels import STATE_LABEL, label_problems
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.errors import printable

__all__ = ["leaving_row", "page_row", "state_word"]

_FIGURES: Final = ("waiting", "running", "kv_usage", "healthy", "slow_start")
_AGEING: Final = ("waiting", "running", "kv_usage")
_ADAPTERS: Final = "lora"
_ATTRIBUTES_SHOWN: Final = 32
_VALUES_BYTES: Final = 2_048
"""Of an endpoint's texts, lists and maps together: ten thousand endpoints make a page of 20 MB at most."""


def state_word(store: EndpointStore, health: HealthWatch | None, metadata: EndpointMetadata) -> str:
    """What keeps requests from an endpoint, else `active`.

    The operator's word goes first: `cordoned`, or `draining` while something is in flight. Then what requests say: the phase
    of one that is out, and `kept` for one that should be and gets requests all the same, because too few others are left.
    """
    if metadata.state is EndpointState.CORDONED:
        return "draining" if store.ledger.in_flight(metadata.id) else "cordoned"
    known = None if health is None else health.health(metadata.id)
    if health is None or known is None:
        return str(metadata.state)
    is_out = known.phase is not Phase.ADMITTED
    if is_out and not health.admits(metadata.id):
        return str(known.phase)
    return "kept" if is_out or known.withheld is not None else str(metadata.state)


def page_row(
    store: EndpointStore, health: HealthWatch, metadata: EndpointMetadata, word: Override | None
) -> Mapping[str, object]:
    """The row. None is what nobody knows; `said` is what the operator said by command, and `cordoned_by` is one of `command`,
    `label` and `discovery`, which stands for `endpoints` of the HostConfig, too.

    `stale` are those of waiting, running, kv usage and `lora` that are older than their limit; `age_s` is the age of the oldest
    of them, and of the first three.
    """
    snapshot = store.snapshot
    row = snapshot.row_of.get(metadata.id)
    scrape = store.scrape_status(metadata.id)
    figures = {
        name: None if row is None else _number(float(snapshot.columns[f"endpoint.{name}"][row])) for name in _FIGURES
    }
    ages_s = {} if row is None else _ages_s(snapshot, row)
    stale = [name for name, age_s in ages_s.items() if age_s > store.freshness.limit_s(name)]
    shown_ages_s = (ages_s[name] for name in {*_AGEING, *stale} & ages_s.keys())
    facts = None if row is None else snapshot.facts[row]
    return {
        "id": metadata.id,
        "url": metadata.url,
        "labels": dict(metadata.labels),
        "state": state_word(store, health, metadata),
        "cordoned_by": _cordoned_by(metadata, word),
        "said": None if word is None else _said(word),
        **_said_by_requests(health.health(metadata.id), snapshot.at, is_admitted=health.admits(metadata.id)),
        "weight": metadata.weight,
        **figures,
        "in_flight": store.ledger.in_flight(metadata.id),
        "age_s": _number(max(shown_ages_s, default=float("nan"))),
        "stale": stale,
        "engine": None if facts is None else facts.engine,
        "attributes": {} if (one := store.endpoint(metadata.id)) is None else _attributes(one.attributes),
        "scrape_errors": 0 if scrape is None else scrape.errors,
        "scrapes_failed_in_a_row": 0 if scrape is None else scrape.consecutive_errors,
        "last_scrape_error": "" if scrape is None else printable(scrape.last_error),
        "lacks": [] if scrape is None else [printable(it) for it in scrape.lacks],
        "problems": [printable(problem) for problem in label_problems(metadata)],
    }


def leaving_row(metadata: EndpointMetadata, in_flight: int) -> Mapping[str, object]:
    """The row of an endpoint that is gone, and works on requests that it had."""
    return {
        "id": metadata.id,
        "url": metadata.url,
        "labels": dict(metadata.labels),
        "state": "leaving",
        "in_flight": in_flight,
    }


def _ages_s(snapshot: Snapshot, row: int) -> dict[str, float]:
    """Of what was ever told."""
    ages = {name: float(snapshot.columns[f"endpoint.age_{name}"][row]) for name in (*_AGEING, _ADAPTERS)}
    return {name: age_s for name, age_s in ages.items() if age_s == age_s}


def _cordoned_by(metadata: EndpointMetadata, word: Override | None) -> str | None:
    if metadata.state is not EndpointState.CORDONED:
        return None
    if word is not None and word.state is EndpointState.CORDONED:
        return "command"
    return "label" if metadata.labels.get(STATE_LABEL) == EndpointState.CORDONED else "discovery"


def _attributes(attributes: AttributeMap) -> Mapping[str, object]:
    """The first by name. What is no JSON, has no value of its own or finds no room is told in words."""
    shown: dict[str, object] = {}
    room = _VALUES_BYTES
    keys = attributes.keys()
    for key in keys[:_ATTRIBUTES_SHOWN]:
        size = attributes.held_bytes(key)
        if attributes.is_dynamic(key):
            shown[key] = "(asked for at each reading)"
        elif size > room or isinstance(value := attributes.get(key), bytes):
            shown[key] = f"({size} bytes)"
        else:
            shown[key] = value
            room -= size
    if (more := len(keys) - _ATTRIBUTES_SHOWN) > 0:
        # No key has parentheses.
        shown["(more)"] = more
    return shown


def _said(word: Override) -> Mapping[str, object]:
    return {
        "state": None if word.state is None else str(word.state),
        "weight": word.weight,
        "who": word.who,
        "at_s": word.at_s,
    }


def _said_by_requests(health: Health | None, now: float, *, is_admitted: bool) -> Mapping[str, object]:
    """`admitted`: whether it gets requests; `why` it was ejected, or would be if enough were left; when it is tried again."""
    if health is None:
        return {"admitted": True, "phase": None, "why": None, "retry_in_s": None}
    is_out = health.phase is not Phase.ADMITTED
    reason = health.reason if is_out else health.withheld
    return {
        "admitted": is_admitted,
        "phase": str(health.phase),
        "why": None if reason is None else str(reason),
        "retry_in_s": round(max(0.0, health.until - now), 1) if health.phase is Phase.EJECTED else None,
    }


def _number(value: float) -> float | None:
    return None if value != value else round(value, 4)
