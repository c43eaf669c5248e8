"""Sources and extractors of packages, which are bound when their types are known, and what is said of them until then."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hotbay.config.data_parameters import READERS
from hotbay.config.data_sources import default_use, read_data_layer
from hotbay.config.data_types import ObjectKind, Point, TypeForm
from hotbay.config.data_uses import ExtractorUse, SourceUse
from hotbay.config.picker_config import load_picker_config
from hotbay.datalayer.endpoint import Endpoint
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.source import AnyExtractor, AttributesOf, DataSource, Emit, Event, Extracted, ObjectEvent
from hotbay.datalayer.sources.bindings import Bindings, NoTypes
from hotbay.datalayer.sources.lifecycle import EndpointNotificationSource
from hotbay.datalayer.sources.registrar import Binding, MissingPolicy, PendingRegistration, Registrar, Resolution
from hotbay.errors import InputError

pytestmark = pytest.mark.anyio

SOURCE = TypeForm(frozenset({Point.SOURCE}), ("endpoint",))
EXTRACTOR = TypeForm(frozenset({Point.EXTRACT}), ("endpoint",))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Role:
    """An extractor of endpoints, or of objects."""

    def __init__(self, name: str, type_name: str = "role-extractor", kind: ObjectKind | None = None) -> None:
        self.name = name
        self.type = type_name
        self.kind = kind

    async def extract_event(self, event: Event) -> AttributesOf:
        return {}


class Reads:
    """An extractor of metrics pages."""

    payload = MetricsPage

    def __init__(self, use: ExtractorUse) -> None:
        self.name = use.name
        self.type = use.type

    async def extract(self, payload: object, endpoint: Endpoint) -> Extracted:
        return {}


class Objects:
    """A source of objects that a package provides."""

    def __init__(self, name: str, kind: ObjectKind) -> None:
        self.name = name
        self.type = "my-source"
        self.kind = kind

    async def run(self, emit: Emit) -> None:
        raise AssertionError("nobody polls here")

    async def notify(self, event: ObjectEvent) -> ObjectEvent | None:
        return event


class Packages(NoTypes):
    """Provides what a test says that processes have said by now."""

    def __init__(self) -> None:
        self.known: dict[str, TypeForm] = {}
        self.asked_for: list[PendingRegistration] = []

    def source(self, use: SourceUse) -> DataSource | None:
        kind = kind_in(use.form)
        if kind is not None:
            return Objects(use.name, kind)
        return EndpointNotificationSource(use.name) if use.form == SOURCE else None

    def extractor(self, use: ExtractorUse, source: SourceUse) -> AnyExtractor | None:
        is_polled = source.form is not None and source.form.payloads == ("metrics",)
        return Reads(use) if is_polled else Role(use.name, use.type, kind_in(source.form))

    def forms(self, uses: Sequence[SourceUse]) -> Mapping[str, TypeForm]:
        return self.known

    def wishes(self) -> Sequence[PendingRegistration]:
        return self.asked_for


def kind_in(form: TypeForm | None) -> ObjectKind | None:
    word = form.payloads[0] if form is not None and form.payloads else ""
    return ObjectKind(*word.partition(":")[2].split("/")) if word.startswith("object:") else None


def of_objects(kind: str, point: Point) -> TypeForm:
    return TypeForm(frozenset({point}), (f"object:/v1/{kind}",))


def use(name: str, type_name: str = "my-source", *extractors: str) -> SourceUse:
    return SourceUse(name, type_name, None, None, tuple(ExtractorUse(it, it, None) for it in extractors))


def bound(resolution: Resolution) -> list[tuple[str, list[str]]]:
    return [(one.source.name, [it.name for it in one.extractors]) for one in resolution.bindings]


async def made(*uses: SourceUse) -> tuple[Bindings, Packages]:
    packages = Packages()
    bindings = Bindings(packages)
    bindings.take(await bindings.prepare(uses, Path(), 0.05))
    return bindings, packages


async def test_source_waits_until_its_type_is_known_and_is_bound_then_where_it_stands() -> None:
    bindings, packages = await made(use("mine", "my-source", "role"), use("other", "other-source"))
    assert [problem.code for problem in bindings.problems] == ["UNAVAILABLE", "UNAVAILABLE"]
    packages.known = {"other-source": SOURCE}
    assert bound(bindings.learn()) == [("other", [])]
    assert [problem.message[:17] for problem in bindings.problems] == ["the source 'mine'"]
    packages.known |= {"my-source": SOURCE}
    assert bound(bindings.learn()) == [("mine", ["role"]), ("other", [])]
    assert bindings.problems == ()


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


# -- versions that are something else ------------------------------------------------------------


async def test_version_of_another_kind_is_bound_as_it_is_and_the_one_before_as_it_was() -> None:
    bindings, packages = await made(use("mine", "my-source", "role"))

    def version(kind: str) -> Resolution:
        packages.known = {"my-source": of_objects(kind, Point.SOURCE), "role": of_objects(kind, Point.EXTRACT)}
        return bindings.learn()

    first, second, third = (version(kind).bindings[0] for kind in ("Pod", "Service", "Pod"))
    assert bindings.problems == ()
    assert (second.source.kind, second.extractors[0].kind) == (ObjectKind("", "v1", "Service"),) * 2  # type: ignore[attr-defined,union-attr]
    assert (third.source is first.source, third.extractors) == (True, first.extractors), "memories and all"


async def test_version_that_does_not_go_together_with_what_is_beside_it_leaves_what_is_bound() -> None:
    bindings, packages = await made(use("mine", "my-source", "role"), use("other", "other-source"))
    pods = of_objects("Pod", Point.SOURCE)
    packages.known = {"my-source": pods, "role": of_objects("Pod", Point.EXTRACT), "other-source": SOURCE}
    first = bindings.learn().bindings
    packages.known |= {"my-source": of_objects("Service", Point.SOURCE)}
    assert bindings.learn().bindings == first
    assert [(it.code, it.found) for it in bindings.problems] == [("CONFIG_INVALID", "one of object:/v1/Pod")]
    packages.known |= {"my-source": pods, "other-source": pods}
    assert bindings.learn().bindings == first
    assert [problem.code for problem in bindings.problems] == ["DUPLICATE_NAME"]


# -- another configuration -----------------------------------------------------------------------

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


async def read(bindings: Bindings, text: str, directory: Path = Path("/a")) -> dict[str, Binding]:
    uses = read_data_layer(load_picker_config(HEAD + text, file="p")).sources
    resolution = bindings.take(await bindings.prepare(uses, directory, 0.05))
    return {binding.source.name: binding for binding in resolution.bindings}


def metrics(parameters: str = "{}", core: str = "{}", behind: str = "{pluginRef: core-metrics-extractor}") -> str:
    return f"""
plugins: [{{type: metrics-data-source, parameters: {parameters}}},
  {{type: core-metrics-extractor, parameters: {core}}}, {{name: x, type: x-type}},
  {{name: other, type: metrics-data-source, parameters: {{path: /other}}}}]
dataLayer:
  sources: [{{pluginRef: metrics-data-source, extractors: [{behind}]}}, {{pluginRef: other}}]
"""


@pytest.mark.parametrize(
    ("text", "directory", "same"),
    [
        (metrics(), "/a", True),
        (metrics("{interval: 50ms, path: /metrics}"), "/b", True),
        (metrics(behind="{pluginRef: x}, {pluginRef: core-metrics-extractor}"), "/a", True),
        (metrics("{interval: 60ms}"), "/a", False),
        (metrics("{path: /others}"), "/a", False),
        (metrics("{port: 9}"), "/a", False),
        (metrics("{scheme: https, insecureSkipVerify: true}"), "/a", False),
        (metrics(core="{defaultEngine: sglang}"), "/a", False),
        (metrics(behind="{pluginRef: x}"), "/a", False),
    ],
)
async def test_source_is_the_same_as_long_as_what_it_is_made_of_is(text: str, directory: str, same: bool) -> None:
    bindings = Bindings(Packages())
    before, after = await read(bindings, metrics()), await read(bindings, text, Path(directory))
    assert (after["metrics-data-source"].source is before["metrics-data-source"].source) is same
    assert after["other"].source is before["other"].source


async def test_files_of_a_source_count_from_the_folder_of_the_configuration() -> None:
    text = """
plugins: [{type: object-directory-source, parameters: {path: pods, apiVersion: v1, kind: Pod}}]
dataLayer: {sources: [{pluginRef: object-directory-source}]}
"""
    bindings, name = Bindings(), "object-directory-source"
    before, after = await read(bindings, text), await read(bindings, text, Path("/b"))
    again = await read(bindings, text.replace("path: pods", "path: /b/pods"), Path("/c"))
    assert (after[name].source is before[name].source, again[name].source is after[name].source) == (False, True)


async def test_extractor_that_moves_is_the_same_and_one_that_was_away_is_not() -> None:
    behind = "{pluginRef: core-metrics-extractor}, {pluginRef: x}"
    moved = metrics().replace("{pluginRef: other}", "{pluginRef: other, extractors: [{pluginRef: x}]}")
    bindings = Bindings(Packages())
    before = (await read(bindings, metrics(behind=behind)))["metrics-data-source"].extractors[1]
    assert (await read(bindings, moved))["other"].extractors == (before,)
    await read(bindings, metrics())
    assert (await read(bindings, moved))["other"].extractors != (before,)


async def test_source_of_a_package_is_kept_by_a_configuration_that_has_it_with_other_extractors() -> None:
    bindings, packages = await made(use("mine", "my-source", "role"))
    packages.known = {"my-source": SOURCE, "role": EXTRACTOR, "other": EXTRACTOR}
    (before,) = bindings.learn().bindings
    uses = [use("mine", "my-source", "other", "role"), use("new", "new-source")]
    found = bindings.take(await bindings.prepare(uses, Path(), 0.05))
    assert bound(found) == [("mine", ["other", "role"])]
    assert found.bindings[0].source is before.source
    assert found.bindings[0].extractors[1] is before.extractors[0]
    assert [problem.message[:16] for problem in bindings.problems] == ["the source 'new'"]
    assert list(await read(bindings, metrics())) == ["metrics-data-source", "other"]


async def test_what_was_prepared_and_not_taken_changes_nothing(tmp_path: Path) -> None:
    bindings = Bindings(Packages())
    before = await read(bindings, metrics())
    uses = read_data_layer(load_picker_config(HEAD + metrics("{path: /x}"), file="p")).sources
    await bindings.prepare(uses, tmp_path, 0.05)
    assert {binding.source.name: binding for binding in bindings.learn().bindings} == before


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
        await Bindings().prepare([use("mine")], Path(), 0.05)
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
    resolution = bindings.learn()
    assert (bound(resolution), bindings.problems) == ([], ())
    (warning,) = resolution.warnings
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


# -- what a configuration adds beside what packages bound ----------------------------------------

WATCHES_PODS = """
plugins: [{name: w, type: my-source},
  {name: pods, type: object-directory-source, parameters: {path: pods, apiVersion: v1, kind: Pod}}]
dataLayer: {sources: [{pluginRef: w}]}
"""
BOTH_PODS = WATCHES_PODS.replace("{pluginRef: w}", "{pluginRef: w}, {pluginRef: pods}")


def named(resolution: Resolution) -> list[str]:
    """The sources that are bound, without those that nobody wrote."""
    return [name for name, _ in bound(resolution) if name != "metrics-data-source"]


async def test_configuration_whose_source_brings_what_a_bound_one_brings_is_refused_and_changes_nothing() -> None:
    packages = Packages()
    bindings = Bindings(packages)
    await read(bindings, WATCHES_PODS)
    packages.known = {"my-source": of_objects("Pod", Point.SOURCE)}
    before = bindings.learn().bindings
    with pytest.raises(InputError) as caught:
        await read(bindings, BOTH_PODS)
    (problem,) = caught.value.problems
    assert (problem.code, problem.place is not None) == ("DUPLICATE_NAME", True)
    assert "come from 'w' already" in problem.message
    assert bindings.learn().bindings == before
    assert bindings.problems == ()
    packages.known = {"my-source": of_objects("Service", Point.SOURCE)}
    bindings.learn()
    await read(bindings, BOTH_PODS)
    assert named(bindings.learn()) == ["w", "pods"], "another kind goes together with it"


@pytest.mark.parametrize("is_still_known", [True, False])
async def test_source_that_was_bound_since_is_let_go_of_and_said_why(is_still_known: bool) -> None:
    packages = Packages()
    bindings = Bindings(packages)
    await read(bindings, WATCHES_PODS)
    uses = read_data_layer(load_picker_config(HEAD + BOTH_PODS, file="p")).sources
    prepared = await bindings.prepare(uses, Path("/a"), 0.05)
    packages.known = {"my-source": of_objects("Pod", Point.SOURCE)}
    assert named(bindings.learn()) == ["w"]
    if not is_still_known:
        packages.known = {}
    assert named(bindings.take(prepared)) == ["pods"]
    for _ in range(2):
        assert [problem.code for problem in bindings.problems] == ["DUPLICATE_NAME"]
        assert named(bindings.learn()) == ["pods"]
    packages.known = {"my-source": of_objects("Service", Point.SOURCE)}
    assert named(bindings.learn()) == ["w", "pods"]
    assert bindings.problems == ()


async def test_source_of_a_package_that_does_not_go_with_what_is_registered_is_a_problem_and_no_other_waits() -> None:
    class Plugin:
        def register_dependencies(self, registrar: Registrar) -> None:
            default = EndpointNotificationSource("mine")
            registrar.register(PendingRegistration("plugin", default.type, Role("role"), default))

    packages = Packages()
    bindings = Bindings(packages, [Plugin()])
    bindings.take(await bindings.prepare([use("mine"), use("other", "other-source")], Path(), 0.05))
    packages.known = {"my-source": of_objects("Pod", Point.SOURCE), "other-source": of_objects("Service", Point.SOURCE)}
    assert bound(bindings.learn()) == [("other", []), ("mine", ["role"])]
    assert [problem.code for problem in bindings.problems] == ["DUPLICATE_NAME"]


async def test_extractor_that_was_made_of_something_else_meanwhile_begins_anew() -> None:
    bindings = Bindings(Packages())

    async def core(parameters: str) -> AnyExtractor:
        return (await read(bindings, metrics(core=parameters)))["metrics-data-source"].extractors[0]

    first = await core("{}")
    assert await core("{}") is first
    other = await core("{defaultEngine: sglang}")
    again = await core("{}")
    assert len({id(one) for one in (first, other, again)}) == 3, "it is not kept for whoever might come back to it"


async def test_extractor_of_a_source_that_stays_bound_as_it_was_is_known_as_long_as_it_is() -> None:
    bindings, packages = await made(use("mine", "my-source", "role"))
    packages.known = {"my-source": SOURCE, "role": EXTRACTOR}
    (before,) = bindings.learn().bindings
    packages.known = {"my-source": SOURCE, "other": TypeForm(frozenset({Point.EXTRACT}), ("json",))}
    wrong = bindings.take(await bindings.prepare([use("mine", "my-source", "other")], Path(), 0.05))
    assert wrong.bindings == (before,)
    packages.known = {"my-source": SOURCE, "role": EXTRACTOR, "more": EXTRACTOR}
    (after,) = bindings.take(await bindings.prepare([use("mine", "my-source", "role", "more")], Path(), 0.05)).bindings
    assert after.extractors[0] is before.extractors[0]
