"""What a host and its scraping process say to each other comes out as it went in."""

import pytest
from hotbay.config.data_parameters import Tls
from hotbay.config.engine_parameters import CustomMetric, EngineMapping, EngineParameters
from hotbay.config.metric_specs import MetricSpec
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.pages.exposition import Sample
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.frames import Frames, framed
from hotbay.datalayer.scraping.wire import (
    Arrived,
    Batch,
    EndpointGone,
    EndpointSaid,
    Failed,
    Order,
    SamplesWanted,
    ScrapeSettings,
    WireEncoder,
    batch_of,
    order_of,
)
from hotbay_sdk.protocol.values import ValueRefusedError
from hypothesis import given
from hypothesis import strategies as st

SPEC = MetricSpec("a:b", (("c", "d"), ("e", "")))
ORDERS: tuple[Order, ...] = (
    ScrapeSettings(),
    ScrapeSettings(
        "/other",
        9400,
        0.5,
        2.0,
        Tls(insecure_skip_verify=True, client_cert_path="/a", client_key_path="/b"),
        EngineParameters(
            "key",
            "mine",
            (EngineMapping("mine", queued=SPEC, block_size_label="x", custom=(CustomMetric("k", SPEC),)),),
            (CustomMetric("l", MetricSpec("m")),),
        ),
        frozenset({"x", "y"}),
        at_node=True,
    ),
    EndpointSaid(
        7, EndpointMetadata("default/a", "a", "fd00::1", 8000, "10.0.0.1:9", {"engine": "größe"}, node_address="n")
    ),
    EndpointGone("default/a"),
    SamplesWanted(frozenset({"a", "b"})),
)

numbers = st.floats(allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
counts = st.dictionaries(texts, st.integers(0, 9), max_size=2)
metrics = st.builds(
    Metrics,
    waiting=st.none() | numbers,
    running=st.none() | numbers,
    block_size=st.none() | st.integers(0, 2**53),
    active_models=st.none() | counts,
    waiting_models=st.none() | counts,
    model=st.none() | texts,
    engine=st.none() | texts,
)
samples = st.dictionaries(
    texts, st.lists(st.builds(Sample, st.dictionaries(texts, texts, max_size=2), numbers), max_size=2).map(tuple)
)
names = st.lists(texts, max_size=2).map(tuple)
pages = st.builds(
    MetricsPage,
    texts,
    metrics,
    samples,
    st.dictionaries(texts, numbers, max_size=2),
    names,
    names,
    st.integers(0, 99),
    st.integers(0, 99),
)
outcomes = st.builds(Arrived, texts, st.integers(0, 2**40), numbers, st.none() | pages) | st.builds(
    Failed, texts, st.integers(0, 2**40), texts, texts
)
batches = st.builds(
    Batch,
    st.lists(outcomes, max_size=4).map(tuple),
    st.lists(st.tuples(st.integers(0, 50), texts), max_size=2).map(tuple),
    st.integers(0, 2**40),
    numbers,
    counts,
)


def test_orders_come_out_as_they_went_in() -> None:
    encoder, frames = WireEncoder(), Frames()
    data = b"".join(encoder.order(order) for order in ORDERS)
    assert tuple(order_of(value) for value in frames.feed(data)) == ORDERS


@given(st.lists(batches, max_size=3), st.integers(1, 50))
def test_batches_come_out_as_they_went_in_however_the_bytes_come(told: list[Batch], size: int) -> None:
    encoder, frames = WireEncoder(), Frames()
    data = b"".join(encoder.batch(batch) for batch in told)
    heard = [
        batch_of(value) for start in range(0, len(data), size) for value in frames.feed(data[start : start + size])
    ]
    assert heard == told


def test_a_value_that_cannot_be_read_is_met_once_and_what_follows_it_is_read() -> None:
    frames = Frames()
    with pytest.raises(ValueRefusedError):
        list(frames.feed(framed(b"\xc1") + framed(b"\x90")))
    assert list(frames.feed(b"")) == [[]]


def test_a_value_that_its_reader_fails_on_is_met_once() -> None:
    frames = Frames()
    for value in frames.feed(framed(b"\x91\x01") + framed(b"\x91\x02")):
        assert value == [1]
        break
    assert list(frames.feed(b"")) == [[2]]
