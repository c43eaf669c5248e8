"""What authors give to one call: every mistake has a place and a way out."""

import pytest
from hotbay.authoring.inputs import DEFAULT_REQUEST, read_endpoints, read_parameters, read_requests
from hotbay.errors import InputError


def problems(read, *args, **options) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(*args, file="f.yaml", **options)
    return [str(problem) for problem in caught.value.problems]


def test_endpoints_keep_the_order_of_the_document() -> None:
    rows = read_endpoints("b: {waiting: 3}\na: {endpoint.kv_usage: 0.5}\nc:\n", file="f", data=())
    assert [(row.id, dict(row.figures)) for row in rows] == [
        ("b", {"endpoint.waiting": 3}),
        ("a", {"endpoint.kv_usage": 0.5}),
        ("c", {}),
    ]


def test_a_data_column_is_a_figure_when_the_type_consumes_it() -> None:
    (row,) = read_endpoints("a: {Prefix.share: 0.5, total: 1}", file="f", data=("Prefix.share",))
    assert dict(row.figures) == {"Prefix.share": 0.5, "total": 1}


def test_an_attribute_is_a_figure_by_its_whole_name() -> None:
    (row,) = read_endpoints("a: {attribute.gpu.load: 3, waiting: 1}", file="f", data=())
    assert dict(row.figures) == {"attribute.gpu.load": 3, "endpoint.waiting": 1}
    for wrong in ("attribute.", "attribute.a b", "gpu.load"):
        (found,) = problems(read_endpoints, f"a: {{{wrong}: 3}}", data=())
        assert "no figure of an endpoint" in found


def test_every_wrong_figure_is_told_with_its_place() -> None:
    text = "a: {wating: 1, waiting: x, kv_usage: true}\nb: 3\n"
    found = problems(read_endpoints, text, data=())
    assert [line.split(": ")[0] for line in found] == ["f.yaml:1:5", "f.yaml:1:25", "f.yaml:1:38", "f.yaml:2:4"]
    assert "Did you mean waiting?" in found[0]


@pytest.mark.parametrize("value", ["1.5", "9223372036854775808", "-9223372036854775808"])
def test_counts_are_whole_numbers_that_fit(value: str) -> None:
    (found,) = problems(read_endpoints, f"a: {{num_blocks: {value}}}", data=())
    assert "whole number" in found


@pytest.mark.parametrize("value", ["1.5", "9223372036854775808"])
def test_an_attribute_that_the_package_declares_i64_is_a_whole_number(value: str) -> None:
    text = f"a: {{attribute.hits: {value}}}"
    (found,) = problems(read_endpoints, text, data=(), kinds={"hits": "i64"})
    assert "whole number" in found
    assert len(read_endpoints(text, file="f", data=(), kinds={"hits": "f32"})) == 1


def test_an_unknown_figure_may_be_said_so() -> None:
    (row,) = read_endpoints("a: {waiting: null}", file="f", data=())
    assert dict(row.figures) == {}


@pytest.mark.parametrize("text", ["", "[]", "3", "{}"])
def test_endpoints_are_a_map_with_something_in_it(text: str) -> None:
    (found,) = problems(read_endpoints, text, data=())
    assert "default/a" in found


def test_a_request_is_what_a_client_would_send() -> None:
    (request,) = read_requests(DEFAULT_REQUEST, file="f", headers={"X-Session-Id": "s"})
    assert request.model == "model"
    assert request.prompt_text() == "user\0hello\0"
    assert request.headers == {"x-session-id": "s"}


def test_a_list_of_bodies_is_a_batch() -> None:
    batch = read_requests("[{prompt: a}, {prompt: b}]", file="f", headers={})
    assert [request.prompt_text() for request in batch] == ["a", "b"]


@pytest.mark.parametrize("text", ["[]", "3", "[{}, 3]", ""])
def test_a_body_is_a_map(text: str) -> None:
    assert problems(read_requests, text, headers={})


def test_parameters_are_a_map_or_nothing() -> None:
    assert read_parameters("", file="f") == {}
    assert read_parameters("{a: 1}", file="f") == {"a": 1}
    assert problems(read_parameters, "[1]")


def test_side_tables_stand_beside_figures() -> None:
    text = (
        "a: {labels: {tier: gold}, endpoint.active_models: {x: 2}, waiting_models: {}, model: m, role: decode, waiting: 3}\n"
        "b: {labels: null, engine: vllm}\n"
    )
    first, second = read_endpoints(text, file="f", data=())
    assert dict(first.figures) == {"endpoint.waiting": 3}
    assert dict(first.facts) == {
        "endpoint.labels": {"tier": "gold"},
        "endpoint.active_models": {"x": 2},
        "endpoint.waiting_models": {},
        "endpoint.model": "m",
        "endpoint.role": "decode",
    }
    assert dict(second.facts) == {"endpoint.engine": "vllm"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("labels: gold", "labels is a map from name to text"),
        ("labels: {tier: 3}", "quote what YAML reads otherwise"),
        ("model: 3", "model is a text"),
        ("endpoint.role: [decode]", "endpoint.role is a text"),
        ("active_models: [x]", "active_models is a map from adapter to number of requests"),
        ("active_models: {x: true}", "active_models is a map from adapter to number of requests"),
        ("waiting_models: {x: -1}", "waiting_models is a map from adapter to number of requests"),
        ("waiting_models: {x: 9223372036854775808}", "waiting_models is a map from adapter to number of requests"),
        ("label: {}", "Did you mean labels?"),
    ],
)
def test_a_value_of_another_kind_is_told_with_its_place(given: str, expected: str) -> None:
    (found,) = problems(read_endpoints, f"a: {{{given}}}", data=())
    assert found.startswith("f.yaml:1:")
    assert expected in found
