"""`hotbay endpoints`: the table, the orders, and waiting for a drain."""

import json

import pytest
from hotbay.cli.admin_client import AdminClient
from hotbay.cli.endpoints import drain_endpoints, watch_endpoints
from hotbay.errors import CapacityError, InputError, Problem
from hotbay.observe.tables import UNKNOWN


def test_table_says_what_keeps_requests_away(bay, hotbay):
    ended = hotbay("endpoints", "--socket", bay.socket)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert " ".join(lines[0].split()) == (
        "endpoint url state healthy why weight slow start waiting running kv usage in flight age engine scrape errors"
    )
    first, second = lines[1].split(), lines[2].split()
    assert first[:5] == ["default/a", "http://10.0.0.1:8000", "ejected", "0", "unreachable,"]
    assert first[-3:] == ["s", "vllm", "7"]
    assert second[2:6] == ["cordoned", UNKNOWN, "errors", "0.5"]
    assert lines[3:9] == [
        "2 endpoints: 1 cordoned, 1 ejected",
        "default/a: the last scrape failed: connect",
        "default/a: its metrics page: missing kv_usage (x)",
        "default/b: label hotbay.dev/weight: no",
        "default/b: cordoned, as me said: `hotbay endpoints uncordon` with its ID ends it",
        "default/gone is not there; when it comes: cordoned, weight 0.5, as me said",
    ]
    assert [line.partition(":")[0] for line in lines[9:]] == [
        "cordoned", "ejected", "unreachable", "errors", "scrapes fail", "slow start",
    ]  # fmt: skip


def test_labels_choose_what_is_shown(bay, hotbay):
    page = bay.operations.pages["endpoints"]
    for selector, chosen in (("zone=x", [0]), ("!zone", [1]), ("zone", [0]), ("zone!=y", [0, 1]), ("zone=y", [])):
        ended = hotbay("endpoints", "-l", selector, "--socket", bay.socket, "-o", "json")
        assert json.loads(ended.out) == {
            "endpoints": [page["endpoints"][n] for n in chosen],
            "leaving": [],
            "absent": [],
        }
    text = hotbay("endpoints", "-l", "zone=x", "--socket", bay.socket).out
    assert "1 endpoint: 1 ejected" in text
    assert "default/b" not in text
    assert "default/gone" not in text
    nothing = hotbay("endpoints", "-l", "zone=y", "--socket", bay.socket)
    assert (nothing.code, nothing.out.partition(";")[0]) == (0, "no endpoint has labels that match 'zone=y'")


def test_what_is_no_selector_asks_nobody(bay, hotbay):
    ended = hotbay("endpoints", "-l", "zone=", "--socket", bay.socket)
    assert ended.code == 0
    ended = hotbay("endpoints", "-l", "=x", "--socket", bay.socket)
    assert (ended.code, ended.out) == (78, "")
    assert "expected KEY=VALUE" in ended.err
    assert len(bay.operations.calls) == 1


@pytest.mark.parametrize("before", [["-l", "zone=a"], ["--watch"], ["--socket", "/nowhere"], ["-o", "json"]])
def test_option_before_a_command_is_refused_and_not_passed_over(bay, hotbay, before):
    ended = hotbay("endpoints", *before, "cordon", "a", "--socket", bay.socket)
    assert (ended.code, ended.out) == (2, "")
    assert "behind cordon" in ended.err
    assert bay.operations.calls == []


def test_json_is_what_the_host_said(bay, hotbay):
    assert (
        json.loads(hotbay("endpoints", "--socket", bay.socket, "-o", "json").out) == bay.operations.pages["endpoints"]
    )


@pytest.mark.parametrize(
    ("command", "call"),
    [
        ("cordon a b", ("cordon", ("a", "b"), None)),
        ("cordon -l zone=a,!spot", ("cordon", (), "zone=a,!spot")),
        ("uncordon default/a", ("uncordon", ("default/a",), None)),
        ("weight 0.5 a", ("weigh", ("a",), None, "0.5")),
        ("weight default --selector zone=a", ("weigh", (), "zone=a", "default")),
    ],
)
def test_order_reaches_the_host_and_its_answer_is_printed(bay, hotbay, command, call):
    ended = hotbay("endpoints", *command.split(), "--socket", bay.socket)
    assert (ended.code, ended.out, ended.err) == (0, f"{call[0]} is done\n", "")
    assert bay.operations.calls == [call]


@pytest.mark.parametrize(
    "command",
    ["cordon", "cordon a -l zone=a", "uncordon", "drain", "weight 0.5", "weight 2 a", "weight x a", "weight nan a",
     "drain a --timeout 0"],
)  # fmt: skip
def test_wrong_usage_asks_nobody(bay, hotbay, command):
    ended = hotbay("endpoints", *command.split(), "--socket", bay.socket)
    assert (ended.code, ended.out) == (2, "")
    assert bay.operations.calls == []


def test_refusal_names_the_next_step(bay, hotbay):
    problem = Problem("UNKNOWN_ENDPOINT", "no endpoint has the id 'x'", hint="did you mean a?")
    bay.operations.fail = InputError([problem])
    ended = hotbay("endpoints", "cordon", "x", "--socket", bay.socket)
    assert (ended.code, ended.err) == (78, "error: UNKNOWN_ENDPOINT: no endpoint has the id 'x'. did you mean a?\n")


def look(leaving: dict[str, int] | None = None, **in_flight: int) -> dict[str, object]:
    def rows(counts: dict[str, int]) -> list[dict[str, object]]:
        return [{"id": f"default/{name}", "in_flight": count} for name, count in counts.items()]

    return {"endpoints": rows(in_flight), "leaving": rows(leaving or {})}


@pytest.fixture
def draining(bay):
    """A host that cordons a and b."""
    bay.operations.pages["cordon"] = look(a=2, b=1)
    return bay


def test_drain_waits_until_nothing_is_in_flight_and_says_what_is(draining, hotbay):
    draining.endpoints.looks = [look(a=2, b=1, c=9), look(a=2, b=1, c=9), look(b=1, c=9), look(a=0, b=0, c=9)]
    ended = hotbay("endpoints", "drain", "a", "b", "--socket", draining.socket)
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "cordoned; still in flight: default/a 2, default/b 1",
        "cordoned; still in flight: default/b 1",
        "drained: default/a, default/b",
    ]
    assert draining.operations.calls[0] == ("cordon", ("a", "b"), None)


def test_drain_waits_for_what_an_endpoint_that_is_removed_meanwhile_works_on(draining, hotbay):
    draining.endpoints.looks = [look(a=2, b=1), look({"a": 2}, b=0), look({"a": 1}), look()]
    ended = hotbay("endpoints", "drain", "a", "b", "--socket", draining.socket)
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "cordoned; still in flight: default/a 2, default/b 1",
        "cordoned; still in flight: default/a 2",
        "cordoned; still in flight: default/a 1",
        "drained: default/a, default/b",
    ]


def test_drain_of_an_endpoint_that_is_gone_is_over(draining, hotbay):
    draining.endpoints.looks = [look(c=9)]
    assert hotbay("endpoints", "drain", "-l", "zone=a", "--socket", draining.socket).code == 0


def test_drain_that_takes_too_long_names_what_is_left_and_what_to_do(draining, capsys):
    times = iter([0.0, 4.9, 5.0])
    draining.endpoints.looks = [look(a=2), look(a=1)]
    with pytest.raises(CapacityError, match="after 5 s: default/a has 1") as caught:
        drain_endpoints(AdminClient(draining.socket), {"ids": ["a"]}, 5.0, as_json=True, now=lambda: next(times))
    assert "stay cordoned" in caught.value.hint
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["in_flight"] for one in said] == [{"default/a": 2}, {"default/a": 1}]


def test_watch_shows_page_after_page(bay, capsys):
    class Interrupting:
        def lines(self, target):
            assert target == "/endpoints/stream"
            yield page
            yield page
            raise KeyboardInterrupt

    page = AdminClient(bay.socket).get("/endpoints")
    watch_endpoints(Interrupting(), as_json=False, wait=lambda s: None)
    assert capsys.readouterr().out.count("default/gone is not there") == 2


def test_real_stream_of_endpoints_ends_with_the_iterator(bay):
    pages = AdminClient(bay.socket).lines("/endpoints/stream?interval_ms=100")
    assert [len(next(pages)["endpoints"]) for _ in range(2)] == [2, 2]
    pages.close()
