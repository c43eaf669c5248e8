"""In-flight counts: exact whatever happens to the endpoints meanwhile."""

import random

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.ledger import Ledger, UnbalancedLedgerError
from hotbay.datalayer.store import EndpointStore


def endpoint(name: str) -> EndpointMetadata:
    return EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000)


def test_s15_completion_after_removal_and_return_settles_its_own_request() -> None:
    store = EndpointStore()
    store.upsert(endpoint("e"))
    store.ledger.started("default/e")
    store.delete("default/e")
    store.upsert(endpoint("e"))
    store.ledger.started("default/e")
    assert store.ledger.in_flight("default/e") == 2
    store.ledger.finished("default/e")
    assert store.publish(1.0).columns["endpoint.in_flight"].tolist() == [1.0]
    store.ledger.finished("default/e")
    assert store.publish(2.0).columns["endpoint.in_flight"].tolist() == [0.0]
    assert store.ledger.total == 0


def relieve_one(ledger: Ledger, rng: random.Random, under_way: list[tuple[str, int | None]]) -> None:
    index = rng.randrange(len(under_way))
    at, tokens = under_way[index]
    if tokens is not None:
        less = rng.randint(0, tokens)
        ledger.relieved(at, less)
        under_way[index] = at, tokens - less


def run_history(rng: random.Random) -> None:
    """Add, remove, start, relieve and settle at random, and compare the counts with a list of what is under way."""
    store = EndpointStore()
    under_way: list[tuple[str, int | None]] = []
    for _ in range(40):
        id_ = f"default/{rng.choice('abc')}"
        match rng.randrange(5):
            case 0:
                store.upsert(endpoint(id_[-1]))
            case 1:
                store.delete(id_)
            case 2:
                under_way.append((id_, rng.choice([None, 0, 7])))
                store.ledger.started(*under_way[-1])
            case 3 if under_way:
                relieve_one(store.ledger, rng, under_way)
            case _ if under_way:
                store.ledger.finished(*under_way.pop(rng.randrange(len(under_way))))
        if id_ in store:
            assert store.ledger.in_flight(id_) == sum(other == id_ for other, _ in under_way)
    for row, id_ in enumerate(store.publish(1.0).ids):
        expected = sum(other == id_ for other, _ in under_way)
        assert store.ledger.by_row[row] == expected
        counts = [tokens for other, tokens in under_way if other == id_]
        assert store.ledger.tokens_by_row[row] == (-1 if None in counts else sum(filter(None, counts)))
        assert not id_ or store.snapshot.columns["endpoint.in_flight"][row] == expected
    for request in under_way:
        store.ledger.finished(*request)
    assert store.ledger.total == 0
    assert not store.ledger.by_row.any()
    assert not store.ledger.tokens_by_row.any()


def test_s15_a_thousand_random_histories_never_go_below_zero_and_end_at_zero() -> None:
    rng = random.Random(15)
    for _ in range(1000):
        run_history(rng)


@pytest.mark.parametrize("tokens", [None, 3])
def test_settling_what_was_never_started_is_refused(tokens: int | None) -> None:
    ledger = Ledger()
    with pytest.raises(UnbalancedLedgerError, match="default/a"):
        ledger.finished("default/a", tokens)
    ledger.started("default/a", 2)
    with pytest.raises(UnbalancedLedgerError):
        ledger.finished("default/a", tokens)
    assert ledger.in_flight("default/a") == 1


def test_request_that_told_nothing_is_not_settled_as_one_that_told_none() -> None:
    ledger = Ledger()
    ledger.started("default/a")
    for settle in (lambda: ledger.finished("default/a", 0), lambda: ledger.relieved("default/a", 0)):
        with pytest.raises(UnbalancedLedgerError):
            settle()
    ledger.finished("default/a")
    assert ledger.entry("default/a") is None


def test_relieved_request_counts_itself_and_the_tokens_that_are_left() -> None:
    store = EndpointStore()
    store.upsert(endpoint("a"))
    store.ledger.started("default/a", 10)
    store.ledger.started("default/a", 5)
    with pytest.raises(UnbalancedLedgerError):
        store.ledger.relieved("default/a", 16)
    store.ledger.relieved("default/a", 8)
    columns = store.publish(1.0).columns
    assert (columns["endpoint.in_flight"][0], columns["endpoint.in_flight_tokens"][0]) == (2.0, 7)
    store.ledger.finished("default/a", 2)
    store.ledger.finished("default/a", 5)
    assert store.ledger.total == 0
    with pytest.raises(UnbalancedLedgerError):
        store.ledger.relieved("default/a", 0)


def test_tokens_are_unknown_while_a_request_without_a_count_is_in_flight() -> None:
    store = EndpointStore()
    store.upsert(endpoint("a"))

    def tokens(now: float) -> int:
        return int(store.publish(now).columns["endpoint.in_flight_tokens"][0])

    assert tokens(1.0) == 0
    store.ledger.started("default/a", 100)
    assert tokens(2.0) == 100
    store.ledger.started("default/a")
    assert tokens(3.0) == -1
    store.ledger.finished("default/a")
    assert tokens(4.0) == 100


def test_live_counts_by_row_cannot_be_written() -> None:
    store = EndpointStore()
    store.upsert(endpoint("a"))
    store.ledger.started("default/a")
    assert store.ledger.by_row[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        store.ledger.by_row[0] = 5.0
