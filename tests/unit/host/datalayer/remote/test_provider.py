"""What is made of the types of packages before any of their processes runs, and where its calls go afterwards."""

from pathlib import Path
from typing import Any

import pytest
from hotbay.config.data_types import BUILTIN_FORMS, Point, TypeForm
from hotbay.config.data_uses import ExtractorUse, SourceUse, check_uses, with_forms
from hotbay.datalayer.discovery.plans import DISCOVERY_SLOT
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.remote.discovery import RemoteDiscovery
from hotbay.datalayer.remote.extractors import (
    RemoteEndpointSource,
    RemoteEventExtractor,
    RemoteExtractor,
    RemoteSource,
)
from hotbay.datalayer.remote.payloads import PAYLOAD_TYPES
from hotbay.datalayer.remote.polling import RemotePollingSource
from hotbay.datalayer.remote.provider import RemoteTypes
from hotbay.datalayer.remote.watching import RemoteWatchSource
from hotbay.datalayer.source import EndpointSource, NotificationSource
from hotbay.datalayer.sources.objects import ObjectDirectorySource
from hotbay.datalayer.sources.registrar import MissingPolicy
from hotbay_sdk.protocol import DataDeclaration, TypeDeclaration

EXTRACTOR = ExtractorUse("mine", "my-extractor", None)


def source(payload: str) -> SourceUse:
    return SourceUse("s", "my-source", TypeForm(frozenset({Point.SOURCE}), (payload,)))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_extractor_is_what_its_source_brings() -> None:
    types = RemoteTypes()
    polled = types.extractor(EXTRACTOR, SourceUse("m", "metrics-data-source", BUILTIN_FORMS["metrics-data-source"]))
    assert isinstance(polled, RemoteExtractor)
    assert (polled.name, polled.type, polled.payload) == ("mine", "my-extractor", MetricsPage)
    told = types.extractor(EXTRACTOR, source("object:/v1/Pod"))
    assert isinstance(told, RemoteEventExtractor)
    assert str(told.kind) == "/v1/Pod"
    assert types.extractor(EXTRACTOR, SourceUse("u", "unknown", None)) is None


def test_source_is_what_its_type_is_known_to_be() -> None:
    types = RemoteTypes()
    assert isinstance(types.source(source("endpoint")), EndpointSource)
    assert isinstance(types.source(source("object:/v1/Pod")), NotificationSource)
    assert types.source(source("metrics")) is None
    assert types.source(SourceUse("u", "unknown", None)) is None


@pytest.mark.anyio
@pytest.mark.parametrize(("payload", "kind"), [("endpoint", RemoteEndpointSource), ("object:/v1/Pod", RemoteSource)])
async def test_source_of_a_process_that_is_live_is_what_it_declares(bay: Any, payload: str, kind: type) -> None:
    types = RemoteTypes()
    types.bind(bay, bay)
    bay.go_live(bay.process(TypeDeclaration("t", ("source",), data=DataDeclaration(payload))))
    assert isinstance(types.source(SourceUse("ref", "t", None)), kind)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("point", "payload", "kind"),
    [
        ("watch", "object:/v1/Pod", RemoteWatchSource),
        ("poll", "json", RemotePollingSource),
        ("poll", "metrics", RemotePollingSource),
        ("watch", "json", type(None)),
        ("watch", "endpoint", type(None)),
        ("poll", "endpoint", type(None)),
        ("poll", "object:/v1/Pod", type(None)),
        ("source", "json", type(None)),
    ],
)
async def test_source_that_finds_data_itself_is_one_where_its_payload_goes_with_its_point(
    bay: Any, point: str, payload: str, kind: type
) -> None:
    types = RemoteTypes()
    types.bind(bay, bay)
    bay.go_live(bay.process(TypeDeclaration("t", (point,), data=DataDeclaration(payload))))
    use = SourceUse("ref", "t", None)
    assert isinstance(types.source(use), kind)
    (known,) = with_forms([use], types.forms([use]))
    assert (check_uses([known]), isinstance(types.source(known), kind)) == ((), True)


@pytest.mark.anyio
async def test_extractor_behind_a_source_of_a_package_reads_what_that_brings() -> None:
    types = RemoteTypes()
    watch = SourceUse("s", "t", TypeForm(frozenset({Point.WATCH}), ("object:/v1/Pod",)))
    poll = SourceUse("s", "t", TypeForm(frozenset({Point.POLL}), ("metrics",)))
    assert isinstance(types.extractor(EXTRACTOR, watch), RemoteEventExtractor)
    polled = types.extractor(EXTRACTOR, poll)
    assert isinstance(polled, RemoteExtractor)
    assert polled.payload is MetricsPage


@pytest.mark.anyio
async def test_columns_are_those_of_the_version_that_was_live_last(bay: Any) -> None:
    types, told = RemoteTypes(), []
    made = types.extractor(EXTRACTOR, source("json"))
    assert isinstance(made, RemoteExtractor)
    assert (made.columns, made.families, types.current("mine")) == ({}, (), None)
    types.called(1, "extract", "mine", duration_s=0.1)
    types.watch(lambda: told.append(1))
    types.bind(bay, bay)
    bay.swap()
    assert (made.columns, len(told)) == ({"a": "f32", "n": "i64"}, 2)
    bay.go_live(None)
    assert made.columns == {"a": "f32", "n": "i64"}


@pytest.mark.anyio
async def test_discovery_of_a_package_takes_the_slot_of_any_other() -> None:
    plan = RemoteTypes().discovery_plan("find")
    assert (plan.slot, plan) == (DISCOVERY_SLOT, RemoteTypes().discovery_plan("find"))
    made = plan.make()
    assert isinstance(made, RemoteDiscovery)
    assert made is not plan.make()


POLLED = TypeDeclaration("t", ("extract",), data=DataDeclaration("json", (), {"a": "f32"}, "models-data-source"))


class Made:
    """A default source."""

    def __init__(self, type_name: str) -> None:
        self.name = self.type = type_name


@pytest.mark.anyio
async def test_extractor_that_is_listed_wishes_for_the_source_that_its_type_says_and_is_the_same_in_every_version(
    bay: Any,
) -> None:
    types = RemoteTypes(default_source=Made)
    types.listed = {"mine": "t"}
    assert types.wishes() == ()
    types.bind(bay, bay)
    assert types.wishes() == ()
    bay.go_live(bay.process(POLLED))
    (wish,) = types.wishes()
    assert (wish.owner, wish.source_type, wish.if_missing) == ("mine", "models-data-source", MissingPolicy.WARN)
    assert wish.default_source is not None
    assert wish.default_source.name == "models-data-source"
    assert isinstance(wish.extractor, RemoteExtractor)
    bay.go_live(None)
    assert types.wishes() == (wish,)
    types.listed = {}
    assert types.wishes() == ()


@pytest.mark.anyio
async def test_extractor_that_is_listed_wishes_for_what_the_version_that_is_live_reads(bay: Any) -> None:
    types = RemoteTypes(default_source=Made)
    types.listed = {"mine": "t"}
    types.bind(bay, bay)
    for payload, source in (("models", "models-data-source"), ("metrics", "models-data-source"), ("metrics", "other")):
        bay.go_live(bay.process(TypeDeclaration("t", ("extract",), data=DataDeclaration(payload, (), {}, source))))
        (wish,) = types.wishes()
        assert isinstance(wish.extractor, RemoteExtractor)
        assert (wish.source_type, wish.extractor.payload) == (source, PAYLOAD_TYPES[payload])
        assert types.wishes() == (wish,)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "declared",
    [
        TypeDeclaration("t", ("score",)),
        TypeDeclaration("t", ("extract",), data=DataDeclaration("json", (), {"a": "f32"})),
        TypeDeclaration("t", ("extract",), data=DataDeclaration("endpoint", (), {"a": "f32"}, "models-data-source")),
    ],
)
async def test_type_that_is_no_extractor_of_polls_or_names_no_source_wishes_for_nothing(
    bay: Any, declared: TypeDeclaration
) -> None:
    types = RemoteTypes(default_source=Made)
    types.listed = {"mine": "t"}
    types.bind(bay, bay)
    bay.go_live(bay.process(declared))
    assert types.wishes() == ()


@pytest.mark.anyio
async def test_forms_are_what_processes_said_last_of_types_that_are_not_known_anyway(bay: Any) -> None:
    types = RemoteTypes()
    uses = (SourceUse("mine", "t", None, None, (EXTRACTOR,)), source("json"))
    assert types.forms(uses) == {}
    types.bind(bay, bay)
    bay.go_live(bay.process(POLLED))
    bay.go_live(None)
    form = TypeForm(frozenset({Point.EXTRACT}), ("json",))
    assert types.forms(uses) == {"t": form, "my-extractor": form}


def test_source_of_objects_without_a_feed_says_what_is_missing() -> None:
    alone, fed = RemoteTypes(), RemoteTypes(feed=lambda kind: ObjectDirectorySource(str(kind), Path("none"), kind))
    made, told = (types.source(source("object:/v1/Pod")) for types in (alone, fed))
    assert isinstance(made, RemoteSource)
    assert isinstance(told, RemoteSource)
    assert [problem.path for problem in made.problems] == ["objects.directory"]
    assert told.problems == ()
