"""How what a discovery or a watch tells is shown."""

import json

from hotbay.authoring.telling import Ran, Told
from hotbay.cli.told import end_lines, told_line, told_page
from hotbay.errors import PluginFault, Problem

ROW = {"id": "default/a", "address": "10.0.0.1", "port": 8000, "labels": {}, "state": "active", "weight": 1.0}


def upsert(row: dict[str, object]) -> Told:
    return Told("upsert", "default/a", 0.01, 1, row, "10.0.0.1:8000")


def ran(*told: Told, ready_s: float | None = 0.02, ended: bool = False, errors: tuple[PluginFault, ...] = ()) -> Ran:
    return Ran("discover", told, ready_s, ended, errors)


def test_an_endpoint_is_shown_with_its_address_and_what_is_not_as_usual() -> None:
    assert told_line("discover", upsert(ROW)) == "upsert    default/a  10.0.0.1:8000"
    unusual = ROW | {"labels": {"team": "a", "tier": "gold"}, "state": "cordoned", "weight": 0.5}
    line = told_line("discover", upsert(unusual))
    assert line == "upsert    default/a  10.0.0.1:8000  team=a, tier=gold  cordoned  weight 0.5"


def test_an_object_is_shown_by_its_key() -> None:
    assert told_line("watch", Told("upsert", "default/pod", 0.01, 1, {"kind": "Pod"})) == "upsert    default/pod"
    assert told_line("watch", Told("delete", "default/pod", 0.01, 0)) == "delete    default/pod"


def test_ready_says_how_many_there_are_and_when() -> None:
    assert told_line("discover", Told("ready", "", 0.0123, 2)) == "ready     2 endpoints after 12 ms"
    assert told_line("watch", Told("ready", "", 1.5, 1)) == "ready     1 object after 1500 ms"


def test_what_is_refused_says_why() -> None:
    wrong = Problem("CONFIG_INVALID", "is refused", path="port", expected="1 to 65535", found="0")
    line = told_line("discover", Told("refused", "default/x", 0.0, 0, why=wrong))
    assert line == "refused   default/x  port: expected 1 to 65535, found 0"
    nameless = Told("refused", "", 0.0, 0, why=Problem("CONFIG_INVALID", "has no name"))
    assert told_line("discover", nameless) == "refused   without a name  CONFIG_INVALID: has no name"


def test_nothing_that_a_plugin_tells_acts_on_a_terminal() -> None:
    line = told_line("discover", Told("delete", "default/\x1b[2Ja\nready", 0.0, 0))
    assert "\x1b" not in line
    assert "\n" not in line


def test_the_end_says_what_went_wrong_and_what_to_do() -> None:
    late = PluginFault("DEADLINE_EXCEEDED", "it did not say ready", hint="call notifier.ready()")
    assert [*end_lines(ran(ready_s=None, errors=(late,)))] == [
        "error: DEADLINE_EXCEEDED: it did not say ready",
        "  what to do: call notifier.ready()",
    ]
    assert [*end_lines(ran())] == []
    (line,) = end_lines(ran(ended=True))
    assert line.startswith("it ended by itself: a host begins it again")


def test_the_page_has_everything_in_order_and_is_json() -> None:
    page = told_page("finding", ran(upsert(ROW), Told("ready", "", 0.02, 1), Told("delete", "default/a", 0.03, 0)))
    assert json.loads(json.dumps(page)) == {
        "type": "finding",
        "point": "discover",
        "records": [
            {"record": "upsert", "after_ms": 10, "id": "default/a", "endpoint": ROW},
            {"record": "ready", "after_ms": 20},
            {"record": "delete", "after_ms": 30, "id": "default/a"},
        ],
        "ready_ms": 20,
        "ended": False,
        "errors": [],
    }
