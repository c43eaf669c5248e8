"""`dataLayer` as a whole: what is read, what is added, and the reference's errors E17 and E21, each with its place."""

import pytest
from hotbay.config.data_parameters import MetricsSource
from hotbay.config.data_sources import DATA_TYPES, Provided, read_data_layer
from hotbay.config.data_types import Point, TypeForm
from hotbay.config.data_uses import ExtractorUse, SourceUse, check_uses, with_forms
from hotbay.config.discovery_parameters import FileDiscovery
from hotbay.config.picker_config import DEFAULT_TEXT, load_picker_config
from hotbay.errors import InputError, Place

LAYER = """
plugins:
- {name: found, type: file-discovery, parameters: {path: e.yaml}}
- {name: metrics, type: metrics-data-source, parameters: {path: /m, port: 9}}
- {name: core, type: core-metrics-extractor}
- {name: core-2, type: core-metrics-extractor}
- {name: scorer, type: queue-scorer}
- {name: list, type: models-data-source}
- {name: names, type: models-data-extractor}
- {name: gpus, type: dcgm-data-source}
- {name: gpu, type: dcgm-extractor}
- {name: life, type: endpoint-notification-source}
- {name: pods, type: object-directory-source, parameters: {path: o, apiVersion: v1, kind: Pod}}
- {name: pods-2, type: object-directory-source, parameters: {path: o2, apiVersion: v1, kind: Pod}}
- {name: nodes, type: object-directory-source, parameters: {path: o, apiVersion: v1, kind: Node}}
- {name: mine, type: my-type, parameters: {anything: [1]}}
dataLayer: """
LINE = LAYER.count("\n") + 3
OTHERS = {"queue-scorer"}


def read(picker, layer, forms=None):
    return read_data_layer(picker(LAYER + layer), others=OTHERS, forms=forms)


def problems(picker, layer, forms=None):
    with pytest.raises(InputError) as caught:
        read(picker, layer, forms)
    for problem in caught.value.problems:
        assert problem.place.file == "picker.yaml"
        assert problem.place.column is not None
    return caught.value.problems


def names(parameters):
    return {use.name: [extractor.name for extractor in use.extractors] for use in parameters.sources}


def test_data_layer_reads_what_it_refers_to(picker):
    parameters = read(
        picker,
        "{injectDefaults: false, discovery: {pluginRef: found}, sources: [{pluginRef: metrics, extractors: [{pluginRef: core}]}]}",
    )
    assert parameters.discovery == FileDiscovery("e.yaml", False)
    assert names(parameters) == {"metrics": ["core"]}
    assert parameters.sources[0].parameters == MetricsSource("/m", 9, None)


def test_a_configuration_that_says_nothing_has_the_default_source():
    parameters = read_data_layer(load_picker_config(DEFAULT_TEXT, file="default"))
    assert parameters.discovery is None
    assert names(parameters) == {"metrics-data-source": ["core-metrics-extractor"]}
    assert parameters.sources[0].injected
    assert parameters.sources[0].parameters == MetricsSource()


def test_ec34_defaults_stand_beside_sources_of_other_names(picker):
    parameters = read(picker, "{sources: [{pluginRef: list, extractors: [{pluginRef: names}]}]}")
    assert names(parameters) == {"list": ["names"], "metrics-data-source": ["core-metrics-extractor"]}
    assert not parameters.warnings


def test_ec34_a_metrics_source_of_another_name_is_one_more_and_warned_of(picker):
    parameters = read(picker, "{sources: [{pluginRef: metrics, extractors: [{pluginRef: core}]}]}")
    assert list(names(parameters)) == ["metrics", "metrics-data-source"]
    (warning,) = parameters.warnings
    assert (warning.place.line, "injectDefaults" in warning.hint) == (6, True)
    assert "fetched twice, by 'metrics' and by the default source" in warning.message


def test_ec34_a_source_of_the_literal_name_keeps_the_defaults_out(picker):
    config = picker(
        "plugins: [{name: metrics-data-source, type: models-data-source}]\n"
        "dataLayer: {sources: [{pluginRef: metrics-data-source}]}"
    )
    assert names(read_data_layer(config)) == {"metrics-data-source": []}


def test_instances_with_the_names_of_the_defaults_are_used_as_they_are_configured(picker):
    config = picker(
        "plugins: [{type: metrics-data-source, parameters: {port: 7}}, {type: models-data-source}]\n"
        "dataLayer: {sources: [{pluginRef: models-data-source}]}"
    )
    parameters = read_data_layer(config)
    assert [use.name for use in parameters.sources] == ["models-data-source", "metrics-data-source"]
    assert parameters.sources[1].parameters == MetricsSource(port=7)


def test_several_sources_have_several_extractors_in_the_order_of_the_file(picker):
    parameters = read(
        picker,
        "{injectDefaults: false, sources: [{pluginRef: gpus, extractors: [{pluginRef: gpu}, {pluginRef: core}]},"
        "{pluginRef: metrics, extractors: [{pluginRef: core}, {pluginRef: gpu}]}, {pluginRef: life}, {pluginRef: pods}, {pluginRef: nodes}]}",
    )
    assert names(parameters) == {
        "gpus": ["gpu", "core"],
        "metrics": ["core", "gpu"],
        "life": [],
        "pods": [],
        "nodes": [],
    }


def test_types_of_packages_are_passed_on(picker):
    parameters = read(
        picker,
        "{injectDefaults: false, discovery: {pluginRef: mine}, sources: [{pluginRef: list, extractors: [{pluginRef: mine}]}, {pluginRef: mine}]}",
    )
    assert isinstance(parameters.discovery, Provided)
    assert parameters.discovery.entry.parameters == {"anything": [1]}
    assert names(parameters) == {"list": ["mine"], "mine": []}


def test_types_of_packages_are_accepted_where_their_declaration_fits(picker):
    forms = {"my-type": TypeForm(frozenset({Point.EXTRACT, Point.DISCOVER}), ("models",))}
    layer = "{discovery: {pluginRef: mine}, sources: [{pluginRef: list, extractors: [{pluginRef: mine}]}]}"
    assert names(read(picker, layer, forms))["list"] == ["mine"]


# E17: what a reference in the data layer names is not what can stand there.


@pytest.mark.parametrize(
    ("layer", "path", "message"),
    [
        ("{sources: [{pluginRef: scorer}]}", "dataLayer.sources[0].pluginRef", "'scorer' is no data source"),
        ("{sources: [{pluginRef: core}]}", "dataLayer.sources[0].pluginRef", "'core' is no data source"),
        ("{sources: [{pluginRef: found}]}", "dataLayer.sources[0].pluginRef", "'found' is no data source"),
        (
            "{sources: [{pluginRef: life, extractors: [{pluginRef: scorer}]}]}",
            "dataLayer.sources[0].extractors[0].pluginRef",
            "'scorer' is no extractor",
        ),
        (
            "{sources: [{pluginRef: life, extractors: [{pluginRef: list}]}]}",
            "dataLayer.sources[0].extractors[0].pluginRef",
            "'list' is no extractor",
        ),
        ("{discovery: {pluginRef: scorer}}", "dataLayer.discovery.pluginRef", "'scorer' is no discovery"),
        ("{discovery: {pluginRef: metrics}}", "dataLayer.discovery.pluginRef", "'metrics' is no discovery"),
    ],
)
def test_e17_what_is_nothing_of_the_data_layer_is_refused(picker, layer, path, message):
    (problem,) = problems(picker, layer)
    assert (problem.path, problem.place.line) == (path, LINE)
    assert message in problem.message


def test_ec32_a_scorer_as_source_is_refused(picker):
    (problem,) = problems(picker, "{sources: [{pluginRef: scorer}]}")
    column = 1 + "dataLayer: {sources: [{pluginRef: scorer}]}".index("scorer")
    assert problem.place == Place("picker.yaml", LINE, column)


def test_e17_references_to_nothing_are_refused(picker_problems):
    (problem,) = picker_problems(LAYER + "{sources: [{pluginRef: life, extractors: [{pluginRef: nobody}]}]}")
    assert (problem.code, problem.path) == ("UNDEFINED_REF", "dataLayer.sources[0].extractors[0].pluginRef")


@pytest.mark.parametrize(
    ("points", "path"),
    [
        ({Point.EXTRACT}, "dataLayer.sources[0].pluginRef"),
        ({Point.SOURCE}, "dataLayer.discovery.pluginRef"),
        (set(), "dataLayer.discovery.pluginRef"),
    ],
)
def test_e17_a_package_whose_type_is_something_else_is_refused(picker, points, path):
    forms = {"my-type": TypeForm(frozenset(points), ("endpoint",))}
    layer = "{sources: [{pluginRef: mine}]}" if "sources" in path else "{discovery: {pluginRef: mine}}"
    assert [p.path for p in problems(picker, layer, forms)] == [path]


@pytest.mark.parametrize("layer", ["{peerDiscovery: {pluginRef: mine}}", "{crossReplicaSyncerPluginRef: mine}"])
def test_e17_what_replicas_share_is_refused_as_not_carried_out(picker_problems, layer):
    (problem,) = picker_problems(LAYER + layer)
    assert (problem.code, problem.place.line) == ("NOT_SUPPORTED", LINE)


# E21: sources and extractors that do not go together.


def test_e21_a_data_layer_without_sources_is_refused(picker):
    (problem,) = problems(picker, "{injectDefaults: false}")
    assert (problem.path, problem.place.line) == ("dataLayer.injectDefaults", LINE)
    assert "no sources" in problem.message


@pytest.mark.parametrize(
    ("layer", "path", "message"),
    [
        (
            "{sources: [{pluginRef: metrics}, {pluginRef: metrics}]}",
            "dataLayer.sources[1].pluginRef",
            "'metrics' is used twice",
        ),
        (
            "{sources: [{pluginRef: pods}, {pluginRef: pods-2}]}",
            "dataLayer.sources[1].pluginRef",
            "objects of the kind /v1/Pod come from 'pods' already",
        ),
        (
            "{sources: [{pluginRef: metrics, extractors: [{pluginRef: core}, {pluginRef: gpu}, {pluginRef: core-2}]}]}",
            "dataLayer.sources[0].extractors[2].pluginRef",
            "has an extractor of type 'core-metrics-extractor' already",
        ),
        (
            "{sources: [{pluginRef: life, extractors: [{pluginRef: core}]}]}",
            "dataLayer.sources[0].extractors[0].pluginRef",
            "'core' cannot read what 'life' brings",
        ),
        (
            "{sources: [{pluginRef: list, extractors: [{pluginRef: core}]}]}",
            "dataLayer.sources[0].extractors[0].pluginRef",
            "'core' cannot read what 'list' brings",
        ),
    ],
)
def test_e21_what_does_not_go_together_is_refused(picker, layer, path, message):
    (problem,) = problems(picker, layer)
    assert (problem.path, problem.place.line) == (path, LINE)
    assert message in problem.message


def test_e21_an_extractor_of_another_kind_of_objects_is_refused(picker):
    forms = {"my-type": TypeForm(frozenset({Point.EXTRACT}), ("object:/v1/Node",))}
    layer = "{sources: [{pluginRef: %s, extractors: [{pluginRef: mine}]}]}"
    assert names(read(picker, layer % "nodes", forms))["nodes"] == ["mine"]
    (problem,) = problems(picker, layer % "pods", forms)
    assert (problem.path, problem.found) == ("dataLayer.sources[0].extractors[0].pluginRef", "one of object:/v1/Node")


def test_e21_a_source_of_more_than_one_variant_is_refused(picker):
    forms = {"my-type": TypeForm(frozenset({Point.SOURCE}), ("metrics", "endpoint"))}
    (problem,) = problems(picker, "{sources: [{pluginRef: mine}]}", forms)
    assert (problem.path, problem.found) == ("dataLayer.sources[0].pluginRef", "endpoint and polling")


def test_e21_a_source_whose_payload_is_no_word_is_refused(picker):
    forms = {"my-type": TypeForm(frozenset({Point.SOURCE}), ("metric",))}
    (problem,) = problems(picker, "{sources: [{pluginRef: mine}]}", forms)
    assert "no known payload" in problem.message


def test_e21_one_type_of_source_across_variants_is_refused():
    place = Place("picker.yaml", 7, 3)
    uses = (
        SourceUse("a", "t", TypeForm(frozenset({Point.SOURCE}), ("metrics",)), place=Place("picker.yaml", 5, 3)),
        SourceUse("b", "t", TypeForm(frozenset({Point.SOURCE}), ("endpoint",)), place=place),
    )
    (problem,) = check_uses(uses)
    assert (problem.place, problem.expected, problem.found) == (place, "polling", "endpoint")
    assert "on line 5" in problem.message


def test_all_that_is_wrong_is_told_at_once(picker):
    found = problems(
        picker,
        "{discovery: {pluginRef: scorer}, sources: [{pluginRef: scorer}, {pluginRef: life, extractors: [{pluginRef: core}]}]}",
    )
    assert len(found) == 3


def test_what_is_wrong_with_an_instance_is_told_once_however_often_it_is_used(picker):
    config = picker(
        "plugins: [{name: x, type: core-metrics-extractor, parameters: {a: 1}}, {type: metrics-data-source}, {type: dcgm-data-source}]\n"
        "dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: x}]}, {pluginRef: dcgm-data-source, extractors: [{pluginRef: x}]}]}"
    )
    with pytest.raises(InputError) as caught:
        read_data_layer(config)
    assert [p.path for p in caught.value.problems] == ["plugins[0].parameters.a"]


# What cannot be judged before a process says what its type is.


def test_uses_are_judged_once_their_forms_are_known():
    uses = (SourceUse("list", "models-data-source", None, extractors=(ExtractorUse("x", "my-type", None),)),)
    assert check_uses(uses) == ()
    forms = {
        "models-data-source": TypeForm(frozenset({Point.SOURCE}), ("models",)),
        "my-type": TypeForm(frozenset({Point.EXTRACT}), ("metrics",)),
    }
    (problem,) = check_uses(with_forms(uses, forms))
    assert "cannot read" in problem.message


def test_a_form_that_is_known_is_not_replaced():
    form = TypeForm(frozenset({Point.SOURCE}), ("models",))
    uses = (SourceUse("a", "t", form, extractors=(ExtractorUse("x", "u", form),)),)
    assert with_forms(uses, {"t": TypeForm(frozenset()), "u": TypeForm(frozenset())}) == uses


# Files of the reference go on working.


@pytest.mark.parametrize(
    ("parameters", "warns"),
    [
        ("{scheme: http, path: /metrics, insecureSkipVerify: true}", False),
        ("{scheme: http, caCertPath: ca.pem}", True),
        ("{scheme: https, insecureSkipVerify: true, caCertPath: ca.pem}", True),
        ("{scheme: https, caCertPath: ca.pem}", False),
    ],
)
def test_protection_that_has_no_effect_is_warned_of(picker, parameters, warns):
    config = picker(
        f"plugins: [{{type: metrics-data-source, parameters: {parameters}}}]\n"
        "dataLayer: {sources: [{pluginRef: metrics-data-source}]}"
    )
    assert bool(read_data_layer(config).warnings) is warns


def test_types_of_the_host_are_all_known():
    assert {"file-discovery", "metrics-data-source", "dcgm-extractor", "object-directory-source"} <= DATA_TYPES
