"""The endpoints for people: whole in a pipe, fitting on a terminal, and every word of it explained."""

import io
from pathlib import Path

import pytest
from hotbay.cli.endpoint_sheet import MEANINGS, endpoint_sheet, named
from hotbay.datalayer.endpoint import EndpointState
from hotbay.datalayer.health.state import Phase, Reason
from rich.console import Console

GUIDE = Path(__file__).parents[4] / "docs" / "operator-guide.md"


def row(name="a", **changes):
    return {
        "id": f"default/{name}", "url": f"http://10.0.0.1:80{name}", "labels": {}, "state": "active", "said": None,
        "admitted": True, "phase": "admitted", "why": None, "retry_in_s": None, "weight": 1.0, "healthy": 1.0,
        "slow_start": 1.0, "waiting": 3.0, "running": 4.0, "kv_usage": 0.25, "in_flight": 0, "age_s": 0.0512, "stale": [],
        "engine": "vllm", "scrape_errors": 0, "scrapes_failed_in_a_row": 0, "last_scrape_error": "", "lacks": [],
        "problems": [], **changes,
    }  # fmt: skip


def lines(*endpoints, absent=()):
    file = io.StringIO()
    endpoint_sheet({"endpoints": list(endpoints), "absent": list(absent)}).print(Console(file=file))
    return file.getvalue().splitlines()


def told(**changes):
    """State, healthy and why of an endpoint, and the words that are explained below."""
    header, line, _, *rest = lines(row(**changes))
    begin, end = header.index("state"), header.index("weight")
    return " ".join(line[begin:end].split()), [
        it.partition(": ")[0] for it in rest if it.partition(": ")[0] in MEANINGS
    ]


@pytest.mark.parametrize(
    ("changes", "shown", "explained"),
    [
        ({}, "active 1 –", []),
        ({"healthy": None}, "active – –", []),
        ({"state": "cordoned"}, "cordoned 1 –", ["cordoned"]),
        ({"state": "draining", "in_flight": 2}, "draining 1 –", ["cordoned", "draining"]),
        # Nothing tries it while it is cordoned.
        (
            {"state": "cordoned", "phase": "ejected", "admitted": False, "why": "errors", "retry_in_s": 5.0},
            "cordoned 1 errors",
            ["cordoned", "errors"],
        ),
        (
            {"state": "ejected", "admitted": False, "why": "slow", "retry_in_s": 21.7, "healthy": 0.0},
            "ejected 0 slow, tried in 22 s",
            ["ejected", "slow"],
        ),
        ({"state": "half-open", "admitted": False, "why": "errors", "healthy": 0.5}, "half-open 0.5 errors", ["half-open", "errors"]),
        ({"state": "probing", "admitted": False, "why": "errors"}, "probing 1 errors", ["probing", "errors"]),
        ({"state": "kept", "why": "errors"}, "kept 1 errors", ["errors", "kept"]),
        ({"state": "kept", "phase": "ejected", "why": "errors", "retry_in_s": 5.0}, "kept 1 errors", ["errors", "kept"]),
        ({"weight": 0.0}, "active 1 weight 0", ["weight 0"]),
        ({"healthy": 0.0, "scrapes_failed_in_a_row": 3}, "active 0 scrapes fail", ["scrapes fail"]),
        ({"scrapes_failed_in_a_row": 1}, "active 1 –", []),
        ({"slow_start": 0.1}, "active 1 slow start", ["slow start"]),
        ({"stale": ["waiting"]}, "active 1 –", ["stale"]),
        # Everything at once: the first of them is why, and all are explained.
        (
            {"state": "kept", "weight": 0.0, "why": "errors", "slow_start": 0.5},
            "kept 1 errors",
            ["errors", "kept", "weight 0", "slow start"],
        ),
    ],
)  # fmt: skip
def test_each_state_and_reason_is_shown_and_explained(changes, shown, explained):
    assert told(**changes) == (shown, explained)


def test_every_word_that_a_host_may_say_has_a_meaning_and_stands_in_the_guide():
    words = {*map(str, Phase), *map(str, Reason), *map(str, EndpointState), "draining", "kept", "leaving"}
    # The first two are as it should be; a probe that failed is told by what brought its endpoint out.
    assert words - MEANINGS.keys() == {"active", "admitted", "probe"}
    guide = GUIDE.read_text()
    assert [word for word in MEANINGS if f"| `{word}` |" not in guide] == []


@pytest.mark.parametrize(
    ("age_s", "stale", "shown"),
    [(None, [], "–"), (0.0512, [], "0.05 s"), (2.345, ["waiting"], "2.3 s (stale)"), (4711.2, ["lora"], "4711 s (stale)"),
     (None, ["lora"], "– (stale)")],
)  # fmt: skip
def test_age_says_whether_it_is_beyond_its_limit(age_s, stale, shown):
    header, line = lines(row(age_s=age_s, stale=stale))[:2]
    assert line[header.index(" age ") : header.index("engine")].strip() == shown


def test_what_holds_of_many_is_said_once():
    failing = {"scrapes_failed_in_a_row": 3, "scrape_errors": 9, "last_scrape_error": "cannot connect: " + "y" * 99}
    said = lines(*(row(f"{n}", **failing) for n in range(200)))[201:]
    first = ", ".join(f"default/{n}" for n in range(5))
    assert said == [
        "200 endpoints: 200 active",
        f"{first}, and 195 more: the last scrape failed: cannot connect: {'y' * 44}…",
    ]


def test_endpoint_that_is_removed_is_a_line_until_nothing_is_in_flight_there():
    leaving = {"id": "default/gone", "url": "http://10.0.0.9:80", "labels": {}, "state": "leaving", "in_flight": 3}
    file = io.StringIO()
    endpoint_sheet({"endpoints": [row()], "leaving": [leaving], "absent": []}).print(Console(file=file))
    header, _, line, counts, meaning = file.getvalue().splitlines()
    assert line.split()[:5] == ["default/gone", "http://10.0.0.9:80", "leaving", "–", "–"]
    assert line[header.index("in flight") :].split()[0] == "3"
    assert (counts, meaning.partition(":")[0]) == ("2 endpoints: 1 active, 1 leaving", "leaving")


def test_operators_word_is_told_with_who_when_and_what_ends_it():
    said = {"state": "cordoned", "weight": 0.5, "who": "ann", "at_s": 1_760_000_000.0}
    assert lines(row(state="cordoned", said=said))[3:5] == [
        "default/a: cordoned, as ann at 2025-10-09 08:53:20Z said: `hotbay endpoints uncordon` with its ID ends it",
        "default/a: weight 0.5, as ann at 2025-10-09 08:53:20Z said: `hotbay endpoints weight default` with its ID ends it",
    ]
    over = {"state": "active", "weight": None, "who": "ann", "at_s": 0.0}
    assert lines(row(said=over))[3:] == ["default/a: active, as ann said"]


@pytest.mark.parametrize(
    ("count", "more"), [(10, []), (11, ["1 more remark: see -o json"]), (12, ["2 more remarks: see -o json"])]
)
def test_remarks_are_bounded(count, more):
    absent = [{"id": f"default/{n}", "state": "cordoned", "weight": None, "who": "me"} for n in range(count)]
    assert lines(row(), absent=absent)[13:] == more
    assert lines(*(row(f"{n}", problems=[f"p{n}"]) for n in range(count)))[count + 12 :] == more


@pytest.mark.parametrize(("count", "shown"), [(5, "a, a, a, a, a"), (6, "a, a, a, a, a, and 1 more")])
def test_names_are_bounded(count, shown):
    assert named(["a"] * count) == shown


@pytest.mark.parametrize(
    ("waits", "problems", "said"),
    [
        ([], 0, "no endpoints: neither `endpoints` of the HostConfig nor a discovery names any"),
        ([], 1, "no endpoints: none is named that can be used; `hotbay status` says which problems discovery has"),
        (
            ["a has not told its endpoints yet", "b too"],
            1,
            "no endpoints yet: a has not told its endpoints yet, b too; `hotbay status` says which problems there are",
        ),
    ],
)
def test_why_there_are_no_endpoints_is_said_in_words(waits, problems, said):
    file = io.StringIO()
    page = {"endpoints": [], "absent": [], "discovery": {"waits": waits, "problems": problems}}
    endpoint_sheet(page).print(Console(file=file))
    assert file.getvalue().splitlines() == [said]


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("label", ["default/a: cordoned by its label hotbay.dev/state: `hotbay endpoints uncordon` with its ID goes over that"]),
        ("discovery", ["default/a: cordoned by the discovery or file that names it: `hotbay endpoints uncordon` with its ID goes over that"]),
        ("command", []),
        (None, []),
    ],
)  # fmt: skip
def test_what_cordons_without_a_command_is_told(by, said):
    assert [line for line in lines(row(state="cordoned", cordoned_by=by))[3:] if line.startswith("default/")] == said


def test_whole_numbers_have_no_fraction():
    header, line = lines(row(weight=1.0, waiting=123456789.0, running=0.5))[:2]
    begin, end = header.index("weight"), header.index("kv usage")
    assert line[begin:end].split() == ["1", "1", "123456789", "0.5"]


def test_counts_are_by_state():
    said = lines(row("a"), row("b", stale=["lora"]), row("c", state="draining", in_flight=1))[4]
    assert said == "3 endpoints: 2 active, 1 draining, 1 with stale figures"


# -- on a terminal ---------------------------------------------------------------------------------


def picture(*endpoints, width=80, height=24):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, height=height, color_system=None)
    console.print(endpoint_sheet({"endpoints": list(endpoints), "absent": []}).picture(console))
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_two_hundred_endpoints_fit_into_a_terminal_and_those_that_tell_most_stay(width):
    many = [row(f"{n:03}") for n in range(200)]
    many[120] = row("120", state="ejected", admitted=False, why="errors", retry_in_s=3.0)
    many[7] = row("007", state="cordoned")
    drawn = picture(*many, width=width)
    assert len(drawn) < 24
    assert max(map(len, drawn)) <= width
    ids = [line.split()[0] for line in drawn if line.startswith("default/")]
    assert {"default/007", "default/120", "default/000"} <= set(ids)
    assert ids == sorted(ids)
    (more,) = [line for line in drawn if line.startswith("and ")]
    assert more.split()[1] == str(200 - len(ids))
    assert "200 endpoints: 198 active, 1 cordoned, 1 ejected" in " ".join(drawn)


@pytest.mark.parametrize(("count", "shown"), [(20, 20), (21, 19)])
def test_rows_are_left_out_only_where_they_do_not_fit(count, shown):
    """A header, a line of what is left out, the counts: 23 lines are room for 20 rows, or for 19 and how many more."""
    drawn = picture(*(row(f"{n:03}") for n in range(count)))
    assert sum(line.startswith("default/") for line in drawn) == shown
    assert len(drawn) <= 23


def test_remarks_and_meanings_make_room_for_rows():
    trouble = [row(f"{n:03}", healthy=0.0, scrapes_failed_in_a_row=3, last_scrape_error=f"e{n}") for n in range(5)]
    few = picture(*trouble)
    assert sum("the last scrape failed" in line for line in few) == 5
    assert any(line.startswith("scrapes fail: ") for line in few)
    some = picture(*trouble, *(row(f"{n:03}") for n in range(5, 14)))
    assert sum(line.startswith("default/") and "failed: " not in line for line in some) == 14
    # What the words mean goes first, then the last of the remarks.
    assert not any(line.startswith("scrapes fail: ") for line in some)
    remarks = sum("the last scrape failed" in line for line in some)
    assert 0 < remarks < 5
    assert f"left out for want of room: {6 - remarks} remarks" in some[-1]
    assert len(some) <= 23
    many = picture(*trouble, *(row(f"{n:03}") for n in range(5, 200)))
    assert sum(line.startswith("default/") for line in many) > 15
    assert "left out for want of room: 6 remarks" in many[-1]


def test_narrow_terminal_keeps_what_matters_most():
    drawn = picture(row("a", state="ejected", admitted=False, why="errors", healthy=0.0), width=60)
    header = drawn[0]
    assert all(name in header for name in ("endpoint", "state", "healthy", "why", "in flight"))
    assert any(line.startswith("left out for want of room: ") and "url" in line for line in drawn)


def test_a_terminal_gets_no_escape_sequence_of_others():
    said = "\n".join(
        lines(row("a\x1b[2J", why="\x1b[2J", engine="\x1b", problems=["\x1b[2J"], last_scrape_error="\x1b"))
    )
    assert "\x1b" not in said
