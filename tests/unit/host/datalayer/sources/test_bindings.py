"""Sources and extractors of packages, which are bound when their types are known, and what is said of them until then."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hotbay.config.data_parameters import READERS
from hotbay.config.data_sources import default_use, read_data_layer
from hotbay.config.data_types import BUILTIN_FORMS, Point, TypeForm
from hotbay.config.data_uses import ExtractorUse, SourceUse
from hotbay.config.picker_config import load_picker_config
from hotbay.datalayer.source import AnyExtractor, AttributesOf, DataSource, Event
from hotbay.datalayer.sources.bindings import Bindings, NoTypes
from hotbay.datalayer.sources.lifecycle import EndpointNotificationSource
from hotbay.datalayer.sources.registrar import MissingPolicy, PendingRegistration, Resolution
from hotbay.errors import InputError

pytestmark = pytest.mark.anyio

SOURCE = TypeForm(frozenset({Point.SOURCE}), ("endpoint",))
EXTRACTOR = TypeForm(frozenset({Point.EXTRACT}), ("endpoint",))
METRICS = SourceUse("metrics-data-source", "metrics-data-source", BUILTIN_FORMS["metrics-data-source"])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Role:
    """An extractor of endpoints."""

    kind = None

    def __init__(self, name: str, type_name: str = "role-extractor") -> None:
        self.name = name
        self.type = type_name

    async def extract_event(self, event: Event) -> AttributesOf:
        return {}


class Packages(NoTypes):
    """Provides what a test says that processes have said by now."""

    def __init__(self) -> None:
        self.known: dict[str, TypeForm] = {}
        self.asked_for: list[PendingRegistration] = []

    def source(self, use: SourceUse) -> DataSource | None:
        return EndpointNotificationSource(use.name) if use.form == SOURCE else None

    def extractor(self, use: ExtractorUse, source: SourceUse) -> AnyExtractor | None:
        return Role(use.name, use.type)

    def forms(self, uses: Sequence[SourceUse]) -> Mapping[str, TypeForm]:
        return self.known

    def wishes(self) -> Sequence[PendingRegistration]:
        return self.asked_for


def use(name: str, type_name: str = "my-source", *extractors: str) -> SourceUse:
    return SourceUse(name, type_name, None, None, tuple(ExtractorUse(it, it, None) for it in extractors))


def bound(resolution: Resolution) -> list[tuple[str, list[str]]]:
    return [(one.source.name, [it.name for it in one.extractors]) for one in resolution.bindings]


async def made(*uses: SourceUse) -> tuple[Bindings, Packages]:
    packages = Packages()
    bindings = Bindings(uses, packages)
    await bindings.make(Path(), 0.05)
    return bindings, packages


async def test_source_waits_until_its_type_is_known_and_is_bound_then_where_it_stands() -> None:
    bindings, packages = await made(use("mine", "my-source", "role"), use("other", "other-source"))
    assert [problem.code for problem in bindings.problems] == ["UNAVAILABLE", "UNAVAILABLE"]
    assert bindings.waits
    packages.known = {"other-source": SOURCE}
    assert bound(bindings.learn()) == [("other", [])]
    assert [problem.message[:17] for problem in bindings.problems] == ["the source 'mine'"]
    packages.known |= {"my-source": SOURCE}
    assert bound(bindings.learn()) == [("mine", ["role"]), ("other", [])]
    assert (bindings.problems, bindings.waits) == ((), False)


async def test_what_is_bound_stays_as_it_is_whatever_is_learned() -> None:
    bindings, packages = await made(use("mine", "my-source", "role"))
    packages.known = {"my-source": SOURCE, "role": EXTRACTOR}
    first = bindings.learn().bindings
    packages.known = {}
    assert bindings.learn().bindings == first
    packages.known = {"my-source": SOURCE, "role": TypeForm(frozenset({Point.EXTRACT}), ("json",))}
    assert bindings.learn().bindings == first
    (problem,) = bindings.problems
    assert (problem.code, problem.expected, problem.found) == (
        "CONFIG_INVALID",
        "an extractor of endpoint",
        "one of json",
    )


@pytest.mark.parametrize(
    ("form", "code"),
    [
        (TypeForm(frozenset({Point.EXTRACT}), ("endpoint",)), "CONFIG_INVALID"),
        (TypeForm(frozenset(), ()), "CONFIG_INVALID"),
        (TypeForm(frozenset({Point.SOURCE}), ("metrics",)), "UNKNOWN_TYPE"),
    ],
)
async def test_e17_source_that_turns_out_to_be_none_is_a_problem_and_concerns_no_other(
    form: TypeForm, code: str
) -> None:
    bindings, packages = await made(use("mine"), use("other", "other-source"))
    packages.known = {"my-source": form, "other-source": SOURCE}
    assert bound(bindings.learn()) == [("other", [])]
    assert [problem.code for problem in bindings.problems] == [code]


async def test_nobody_provides_what_is_no_packages() -> None:
    with pytest.raises(InputError) as caught:
        await Bindings([use("mine")]).make(Path(), 0.05)
    assert [problem.code for problem in caught.value.problems] == ["UNKNOWN_TYPE"]


def wish(
    owner: str, *, default: DataSource | None = None, type_name: str = "endpoint-notification-source"
) -> PendingRegistration:
    return PendingRegistration(owner, type_name, Role(owner, f"{owner}-type"), default, MissingPolicy.WARN)


async def test_wishes_get_their_default_source_and_go_with_who_asked() -> None:
    bindings, packages = await made()
    default = EndpointNotificationSource("endpoint-notification-source")
    packages.asked_for = [wish("a", default=default), wish("b")]
    assert bound(bindings.learn()) == [("endpoint-notification-source", ["a", "b"])]
    packages.asked_for = packages.asked_for[1:]
    assert bound(bindings.learn()) == []
    (warning,) = bindings.problems
    assert "'b' needs a source of type 'endpoint-notification-source'" in warning.message


async def test_wish_that_does_not_go_together_with_the_others_is_a_problem_and_concerns_no_other() -> None:
    bindings, packages = await made(use("endpoint-notification-source"))
    packages.known = {"my-source": SOURCE}
    other = EndpointNotificationSource("b-source")
    twice = EndpointNotificationSource("b-source")
    other.type = "b-type-of-source"
    twice.type = "c-type-of-source"
    packages.asked_for = [
        wish("a", default=other, type_name="b-type-of-source"),
        wish("b", default=twice, type_name="c-type-of-source"),
        wish("c"),
    ]
    assert bound(bindings.learn()) == [("endpoint-notification-source", ["c"]), ("b-source", ["a"])]
    assert [problem.code for problem in bindings.problems] == ["DUPLICATE_NAME"]


@pytest.mark.parametrize("name", ["metrics-data-source", "models-data-source", "dcgm-data-source"])
def test_default_source_is_as_one_that_is_configured_without_parameters(name: str) -> None:
    text = f"apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{{type: {name}}}]\n"
    config = load_picker_config(text, file="p")
    (entry,) = (plugin for plugin in config.plugins if plugin.type == name)
    found = default_use(name)
    assert found is not None
    assert (found.name, found.parameters) == (name, READERS[name](config, entry))
    assert default_use("object-directory-source") is None
    assert read_data_layer(config).sources


def test_names_that_the_data_layer_refers_to() -> None:
    text = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: file-discovery, parameters: {path: x}}, {type: metrics-data-source}, {type: core-metrics-extractor},
  {type: queue-scorer}]
dataLayer:
  discovery: {pluginRef: file-discovery}
  sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]
"""
    assert load_picker_config(text, file="p").data_layer.refs == {
        "file-discovery",
        "metrics-data-source",
        "core-metrics-extractor",
    }
