"""What is made of the types of packages before any of their processes runs, and where its calls go afterwards."""

from pathlib import Path
from typing import Any

import pytest
from hotbay.config.data_types import BUILTIN_FORMS, Point, TypeForm
from hotbay.config.data_uses import ExtractorUse, SourceUse
from hotbay.datalayer.discovery.plans import DISCOVERY_SLOT
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.remote.discovery import RemoteDiscovery
from hotbay.datalayer.remote.extractors import (
    RemoteEndpointSource,
    RemoteEventExtractor,
    RemoteExtractor,
    RemoteSource,
)
from hotbay.datalayer.remote.provider import RemoteTypes
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
