"""Parameters of core-metrics-extractor, and the syntax of specs."""

import pytest
from hotbay.config.documents import read_document
from hotbay.config.engine_parameters import CustomMetric, EngineMapping, EngineParameters, read_engine_parameters
from hotbay.config.forms import Form
from hotbay.config.metric_specs import MetricSpec, SpecSyntaxError, parse_metric_spec
from hypothesis import given
from hypothesis import strategies as st


def read(text: str) -> tuple[EngineParameters, list[str]]:
    """The parameters, and each problem as `line:column code path`."""
    form = Form(read_document(text, file="picker.yaml").document)
    parameters = read_engine_parameters(form, form.document.value, ())
    problems = [f"{it.place.line}:{it.place.column} {it.code} {it.path}" for it in form.problems if it.place]
    assert len(problems) == len(form.problems)
    return parameters, problems


def test_nothing_written_are_the_built_in_engines() -> None:
    assert read("{}") == (EngineParameters(), [])


def test_all_that_can_be_written_is_read() -> None:
    parameters, problems = read(
        """
engineLabelKey: example.com/engine
defaultEngine: Mine
engineConfigs:
- name: Mine
  queuedRequestsSpec: mine_requests{state=queued}
  runningRequestsSpec: 'mine_requests{state="running"}'
  kvUsageSpec: mine_cache
  loraSpec: ""
  cacheInfoSpec: mine_info
  cacheBlockSizeLabelName: tokens
  cacheBlockSizeSpec: mine_block
  cacheNumBlocksSpec: mine_blocks
  customMetrics:
  - {attributeKey: mine.depth, metricSpec: mine_depth}
- {name: other}
customMetrics:
- {attributeKey: errors, spec: errors_total}
"""
    )
    assert problems == []
    assert parameters == EngineParameters(
        "example.com/engine",
        "mine",
        (
            EngineMapping(
                "mine",
                queued=MetricSpec("mine_requests", (("state", "queued"),)),
                running=MetricSpec("mine_requests", (("state", "running"),)),
                kv_usage=MetricSpec("mine_cache"),
                cache_info=MetricSpec("mine_info"),
                block_size=MetricSpec("mine_block"),
                num_blocks=MetricSpec("mine_blocks"),
                block_size_label="tokens",
                custom=(CustomMetric("mine.depth", MetricSpec("mine_depth")),),
            ),
            EngineMapping("other"),
        ),
        (CustomMetric("errors", MetricSpec("errors_total")),),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("engineConfigs: [{name: default}]", "1:24 CONFIG_INVALID engineConfigs[0].name"),
        ("engineConfigs: [{name: a}, {name: ' A '}]", "1:35 DUPLICATE_NAME engineConfigs[1].name"),
        ("engineConfigs: [{kvUsageSpec: a}]", "1:17 CONFIG_INVALID engineConfigs[0].name"),
        ("engineConfigs: [{name: a, kvUsageSpec: 'a{b'}]", "1:40 CONFIG_INVALID engineConfigs[0].kvUsageSpec"),
        ("engineConfigs: [{name: a, kvUsageSpec: 5}]", "1:40 CONFIG_INVALID engineConfigs[0].kvUsageSpec"),
        ("engineConfigs: [{name: a, kvUsage: b}]", "1:27 UNKNOWN_FIELD engineConfigs[0].kvUsage"),
        ("engineConfigs: [a]", "1:17 CONFIG_INVALID engineConfigs[0]"),
        ("engineConfigs: {}", "1:16 CONFIG_INVALID engineConfigs"),
        ("defaultEngine: unheard", "1:16 CONFIG_INVALID defaultEngine"),
        ("defaultEngine: default", "1:16 CONFIG_INVALID defaultEngine"),
        ("engineLabel: x", "1:1 UNKNOWN_FIELD engineLabel"),
        ("customMetrics: [{attributeKey: a}]", "1:17 CONFIG_INVALID customMetrics[0].spec"),
        ("customMetrics: [{spec: a}]", "1:17 CONFIG_INVALID customMetrics[0].attributeKey"),
        ("customMetrics: [{attributeKey: 'a b', spec: a}]", "1:32 CONFIG_INVALID customMetrics[0].attributeKey"),
        (
            "customMetrics: [{attributeKey: a, spec: a, metricSpec: a}]",
            "1:56 CONFIG_INVALID customMetrics[0].metricSpec",
        ),
        (
            "customMetrics: [{attributeKey: a, spec: b}, {attributeKey: a, spec: c}]",
            "1:16 DUPLICATE_NAME customMetrics",
        ),
    ],
)
def test_each_mistake_is_reported_at_its_place(text: str, problem: str) -> None:
    assert read(text)[1] == [problem]


def test_an_attribute_may_be_given_by_different_engines_and_not_twice_by_one() -> None:
    entry = "{{name: {name}, customMetrics: [{{attributeKey: x, spec: {name}}}]}}"
    text = f"engineConfigs: [{entry.format(name='a')}, {entry.format(name='b')}]"
    assert read(text)[1] == []
    assert read(f"{text}\ncustomMetrics: [{{attributeKey: x, spec: c}}]")[1] == ["2:16 DUPLICATE_NAME customMetrics"]


@pytest.mark.parametrize("length", [128, 129])
def test_an_attribute_key_may_have_its_longest_length_and_no_more(length: int) -> None:
    problems = read(f"customMetrics: [{{attributeKey: {'a' * length}, spec: b}}]")[1]
    assert bool(problems) is (length > 128)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("a:b", MetricSpec("a:b")),
        (" a { } ", MetricSpec("a")),
        ("a{b=c}", MetricSpec("a", (("b", "c"),))),
        ('a{ b = "c" , d=e }', MetricSpec("a", (("b", "c"), ("d", "e")))),
        ('a{b=""}', MetricSpec("a", (("b", ""),))),
        ('a{b="x,y",c="="}', MetricSpec("a", (("b", "x,y"), ("c", "=")))),
    ],
)
def test_specs_are_read(text: str, spec: MetricSpec) -> None:
    assert parse_metric_spec(text) == spec


@pytest.mark.parametrize(
    "text", ["", "1a", "a{b}", "a{b=c", "a{b=c,}", "a{=c}", 'a{b="c}', "a b", "a{{b=c}}", "a{b=1,b=2}", "a" * 1025]
)
def test_what_is_no_spec_is_refused(text: str) -> None:
    with pytest.raises(SpecSyntaxError):
        parse_metric_spec(text)


names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
values = st.text(st.characters(exclude_characters='"{}', exclude_categories=["Cs"]), max_size=10)


@given(names, st.dictionaries(names, values, max_size=3))
def test_a_spec_that_is_written_is_read_back(name: str, labels: dict[str, str]) -> None:
    spec = MetricSpec(name, tuple(labels.items()))
    assert parse_metric_spec(str(spec)) == spec
