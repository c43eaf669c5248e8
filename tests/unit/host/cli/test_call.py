"""How the answer to one call is shown."""

import math

import click
import pytest
from hotbay.authoring.runner import Called
from hotbay.cli import call as module
from hotbay.cli.called import called_lines, called_page


def called(
    point: str, *rows: object, errors: tuple[tuple[int, str], ...] = (), latencies_s: tuple[float, ...] = (0.001,)
):
    return Called(point, rows, errors, latencies_s, 0.05)  # type: ignore[arg-type]  # rows are given as they are shown


def lines(answer: Called) -> list[str]:
    return called_lines(answer)


def test_scores_are_shown_best_first_and_those_that_are_none_last() -> None:
    shown = lines(called("score", {"a": 0.25, "b": math.nan, "c": 1.0}))
    assert shown == ["request 0: scores, best first", "  1  c", "  0.25  a", "  nan  b", "latency 1.000 ms"]


def test_lists_are_shown_in_their_order() -> None:
    assert lines(called("pick", ["b", "a"], []))[:5] == [
        "request 0: picks, best first",
        "  b",
        "  a",
        "request 1: picks, best first",
        "  none",
    ]


def test_produced_columns_are_shown_by_name() -> None:
    shown = lines(called("produce", {"K.row": {"a": 0.5, "b": 2.0}, "K.one": 3.0}))
    assert shown[1:3] == ["  K.row: a 0.5, b 2", "  K.one: 3"]


def test_errors_name_their_request() -> None:
    shown = lines(called("score", errors=((-1, "PLUGIN_ERROR: x"), (2, "BAD_RESULT: y"))))
    assert shown[:2] == ["error in every request: PLUGIN_ERROR: x", "error in request 2: BAD_RESULT: y"]


def test_request_that_failed_has_its_error_and_no_scores() -> None:
    one = called("score", {"a": 0.0}, {"a": 1.0}, errors=((0, "PLUGIN_ERROR: x"),))
    assert lines(one)[:3] == ["request 1: scores, best first", "  1  a", "error in request 0: PLUGIN_ERROR: x"]
    every = called("score", {"a": 0.0}, {"a": 0.0}, errors=((-1, "PLUGIN_ERROR: x"),))
    assert lines(every)[0] == "error in every request: PLUGIN_ERROR: x"
    assert called_page("t", one)["results"] == [None, {"a": 1.0}]
    assert called_page("t", every)["results"] == [None, None]


@pytest.mark.parametrize(("errors", "code"), [((), 0), (((1, "x"),), 1), (((-1, "x"),), 1)])
def test_call_that_raised_is_told_by_the_exit_code(errors: tuple[tuple[int, str], ...], code: int) -> None:
    assert module._exit_code(called("score", {"a": 0.0}, {"a": 0.0}, errors=errors)) == code


@pytest.mark.parametrize("word", ["score", "scorer"])
def test_point_has_the_word_of_a_new_project_and_that_of_the_protocol(word: str) -> None:
    (option,) = (parameter for parameter in module.call.params if parameter.name == "point")
    assert option.type.convert(word, option, None) == "score"


@pytest.mark.parametrize(("seconds", "late"), [(0.05, False), (0.0501, True)])
def test_calls_over_a_hosts_deadline_are_told(seconds: float, late: bool) -> None:
    last = lines(called("score", {"a": 1.0}, latencies_s=(0.001, seconds)))[-1]
    assert last.startswith("latency of 2 calls: first 1.000 ms, median ")
    assert ("1 over a host's deadline of 50 ms" in last) is late


def test_json_has_no_number_that_json_lacks() -> None:
    page = called_page("t", called("score", {"a": math.nan, "b": math.inf, "c": 0.5}))
    assert page["results"] == [{"a": None, "b": None, "c": 0.5}]
    assert page["latency_us"] == [1000]


def test_headers_have_a_name_and_a_value() -> None:
    assert module._headers(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    for wrong in ("a", "=b"):
        with pytest.raises(click.UsageError):
            module._headers([wrong])
