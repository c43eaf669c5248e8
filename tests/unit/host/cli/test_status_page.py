"""A status page for people: whole in a pipe, fitting on a terminal."""

import io

import pytest
from hotbay.cli.status import print_status, status_sheet
from rich.console import Console

LONG = "default/model-server-7f9c6d-in-a-namespace-with-a-long-name"
PAGE = {
    "version": "0.1.0",
    "ready": True,
    "isolation": "none",
    "plugins": [
        {
            "plugin": "a-plugin-with-quite-a-long-name",
            "phase": "live",
            "live": {"version": "1.0.0", "rev": 20261201, "generation": 3, "pid": None},
            "restarts": 1,
            "swaps": 0,
            "last_error": {"code": "CRASHED", "message": "signal 9 " + "x" * 99, "generation": 2, "s_ago": 7300.0},
        }
    ],
    "bindings": [
        {"ref": "my-queue", "type": "queue-scorer", "degraded": 6, "last_reason": "CRASHED", "last_s_ago": 12.3},
        {"ref": "never", "type": "queue-scorer", "degraded": 0, "last_reason": None, "last_s_ago": None},
    ],
    "endpoints": [
        {
            "id": LONG,
            "url": "http://model-server.namespace.svc.cluster.local:8000",
            "state": "active",
            "in_flight": 2,
            "waiting": None,
            "scrape_errors": 4,
            "scrapes_failed_in_a_row": 3,
            "last_scrape_error": "cannot connect: " + "y" * 200,
        }
    ],
    "problems": [],
}


def shown(page=PAGE, *, terminal=False, width=80):
    file = io.StringIO()
    print_status(page, Console(file=file, force_terminal=terminal, width=width, color_system=None))
    return file.getvalue()


def test_in_a_pipe_nothing_is_cut_or_folded():
    lines = shown().splitlines()
    assert [line.split()[0] for line in lines] == [
        "hotbay",
        "plugin",
        "a-plugin-with-quite-a-long-name",
        "a-plugin-with-quite-a-long-name:",
        "binding",
        "my-queue",
        "endpoint",
        LONG,
        LONG + ":",
    ]
    assert "http://model-server.namespace.svc.cluster.local:8000" in lines[7]
    assert "20261201" in lines[2]
    assert lines[3].endswith("last error (generation 2, 2 h ago): CRASHED: signal 9 " + "x" * 99)
    assert lines[5].split() == ["my-queue", "queue-scorer", "–", "–", "6", "CRASHED", "12", "s", "ago"]
    assert "╭" not in shown()
    assert "─" not in shown()


def test_unknown_figures_are_a_dash():
    assert shown().splitlines()[7].split()[3:] == ["2", "–", "–", "–", "4"]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_on_a_terminal_names_fold_and_lines_fit(width):
    said = shown(terminal=True, width=width)
    assert max(len(line) for line in said.splitlines()) <= width
    assert "…" not in said.replace("y…", "")
    ids = [line.split()[0] for line in said.splitlines() if line.strip()]
    assert LONG in "".join(ids)


def test_columns_that_are_left_out_are_named():
    assert "left out for want of room: url" in shown(terminal=True, width=80)
    assert "left out" not in shown(terminal=True, width=200)


def test_version_stays_at_80_columns_and_what_is_least_important_goes():
    live = {"version": "0.2.0", "rev": 2, "generation": 12, "pid": 18778}
    row = {"plugin": "queue-depth", "phase": "canary (paused)", "live": live, "candidate": {"rev": 3}, "leases": 0,
           "target": "sha256:" + "b" * 64, "restarts": 0, "swaps": 0}  # fmt: skip
    said = shown({**PAGE, "plugins": [row], "endpoints": []}, terminal=True)
    assert said.splitlines()[1].split() == [
        "plugin",
        "phase",
        "version",
        "rev",
        "candidate",
        "pid",
        "restarts",
        "swaps",
    ]
    assert "left out for want of room: target, generation, leases" in said


def test_candidate_and_target_are_named():
    live = {**PAGE["plugins"][0]["live"], "digest": "sha256:" + "a" * 64}
    row = {**PAGE["plugins"][0], "live": live, "candidate": {"rev": 8}, "target": "sha256:" + "b" * 64, "leases": 4}
    header, line = shown({**PAGE, "plugins": [row]}).splitlines()[1:3]
    names = "version rev candidate target generation pid leases restarts swaps"
    assert header.split()[2:] == names.split()
    assert line.split()[2:] == ["1.0.0", "20261201", "8", "sha256:bbbbbbbbbbbb", "3", "–", "4", "1", "0"]
    current = {**row, "target": live["digest"]}
    assert shown({**PAGE, "plugins": [current]}).splitlines()[2].split()[5] == "–"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"phase": "canary", "paused": True}, "canary (paused)"),
        ({"retry_in_s": 2.5}, "p: goes on by itself in 2.5 s"),
        ({"cold": "index: too large"}, "p: began without the state of its predecessor: index: too large"),
        ({"awaiting_grant": ["sha256:ab"]}, "p: sha256:ab asks for more than is granted: `hotbay grant p CAP…`"),
        (
            {"verdict": {"ruling": "wait", "figure": "failures", "candidate": 0.001, "live": 0, "bound": 0.01}},
            "p: wait: failures 0.10%, of the live one 0.00%, allowed 1.00%",
        ),
        (
            {
                "verdict": {
                    "ruling": "fail",
                    "figure": "memory",
                    "candidate": 7 << 28,
                    "live": 3 << 20,
                    "bound": 1 << 28,
                }
            },
            "p: fail: memory 1792 MiB, of the live one 3 MiB, allowed 256 MiB",
        ),
        ({"verdict": {"ruling": "fail", "figure": "x", "candidate": None}}, "p: fail: x –, of the live one –"),
        (
            {"verdict": {"ruling": "pass", "figure": "x", "phase": "guard", "rev": 2}},
            "p: guard of rev 2: pass: x –, of the live one –",
        ),
        ({"progress": {"phase": "environment", "bytes": 1, "total_bytes": 1}}, "p its environment is built: 1 bytes"),
    ],
)
def test_what_a_plugin_is_about_is_said(row, said):
    assert said in shown({**PAGE, "plugins": [{"plugin": "p", **row}]})


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        ({"bytes": 0, "total_bytes": 10}, "p is downloaded: 0 bytes of 10 bytes (0 %)"),
        ({"bytes": 10, "total_bytes": 10}, "p is downloaded: 10 bytes of 10 bytes (100 %)"),
        ({"bytes": 2048, "total_bytes": None}, "p is downloaded: 2.0 KiB"),
        ({}, None),
        (None, None),
    ],
)
def test_progress_of_a_download(progress, said):
    page = {**PAGE, "plugins": [{"plugin": "p", "progress": progress}]}
    lines = [line for line in shown(page).splitlines() if "downloaded" in line]
    assert lines == ([] if said is None else [said])


def test_store_tells_of_its_alarm_only_when_it_is_on():
    store = {"bytes": 1 << 20, "budget_bytes": None, "free_bytes": None, "alarm": False}
    assert shown({**PAGE, "store": store}).splitlines()[-1] == "store: 1.0 MiB"
    parts = {**store, "package_bytes": 1 << 18, "environment_bytes": 3 << 18}
    said = "store: 1.0 MiB (packages 256.0 KiB, environments 768.0 KiB)"
    assert shown({**PAGE, "store": parts}).splitlines()[-1] == said
    assert "nearly full" in shown({**PAGE, "store": {**store, "alarm": True}})


def test_build_that_asks_for_more_is_named_shortly():
    page = {**PAGE, "plugins": [{"plugin": "p", "awaiting_grant": ["sha256:" + "c" * 64]}]}
    assert "p: sha256:cccccccccccc asks for more" in shown(page)


def test_scrape_errors_are_short():
    assert "3 scrapes in a row failed, the last one: cannot connect: " + "y" * 44 + "…" in shown()


def test_a_terminal_gets_no_escape_sequence_of_others():
    page = {**PAGE, "problems": ["\x1b[2J", "a\nb"], "version": "\x1b]0;x\x07"}
    assert "\x1b" not in shown(page)
    assert "problem: a\\nb" in shown(page)


def waiting(ruling="wait", **gathered):
    verdict = {
        "ruling": ruling, "figure": "memory", "candidate": 14 << 20, "live": 15 << 20, "bound": 143 << 20,
        "phase": "canary", "rev": 4, "gathered": gathered,
    }  # fmt: skip
    return shown({**PAGE, "plugins": [{**PAGE["plugins"][0], "verdict": verdict}]})


def test_trial_that_waits_says_what_is_missing_for_its_verdict():
    have = {"counted": "requests", "count": 37, "wanted": 100, "elapsed_s": 20.4, "for_s": 5.0, "at_most_s": 300.0}
    said = "canary of rev 4: 37 of 100 requests, 5 of 5 s, at most 300 s: wait: memory 14 MiB, of the live one 15 MiB"
    assert said in waiting(**have)
    assert "37 of 100 requests or 1 of 5 s: wait" in waiting(**{**have, "elapsed_s": 1.2, "at_most_s": None})
    assert "canary of rev 4: pass: memory" in waiting("pass", **have)


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        ({"rev": 7, "digest": "sha256:x", "by": "ann"}, ": pinned to rev 7 by ann: `hotbay unpin a-plugin-with-quite"),
        ({"rev": 7, "digest": None, "by": None}, ": pinned to rev 7 in the configuration\n"),
        ({"rev": None, "digest": "sha256:x", "by": None}, ": pinned to sha256:x in the configuration\n"),
    ],
)
def test_pin_is_told_and_what_ends_it(pin, said):
    assert said in shown({**PAGE, "plugins": [{**PAGE["plugins"][0], "pin": pin}]})


def test_versions_below_what_runs_are_told():
    said = shown({**PAGE, "plugins": [{**PAGE["plugins"][0], "below": [3, 2]}]})
    assert "rev 2 is below what runs, rev 20261201, and is not chosen: `hotbay pin a-plugin-with" in said
    assert said.count("is below what runs") == 2


def test_polled_sources_show_what_was_asked_for_and_what_is():
    polled = [
        {"source": "metrics-data-source", "asked_s": 0.05, "interval_s": 0.4, "extractors": ["core", "mine"]},
        {"source": "models", "asked_s": 5.0},
    ]
    told = [{"source": "adapters", "extractors": ["lora"]}]
    lines = shown({**PAGE, "polled": polled, "event_sources": told}).splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("polled source"))
    assert [" ".join(line.split()) for line in lines[begin : begin + 5]] == [
        "polled source interval wanted interval now extractors",
        "metrics-data-source 0.05 s 0.4 s core, mine",
        "models 5 s – –",
        "source of events extractors",
        "adapters lora",
    ]
    assert "polled" not in shown()
    assert "source of events" not in shown()


def test_scrapes_that_failed_once_and_are_well_now_are_a_count_and_no_remark():
    well = {**PAGE["endpoints"][0], "scrapes_failed_in_a_row": 0, "waiting": 1.0}
    *_, line = shown({**PAGE, "endpoints": [well]}).splitlines()
    assert line.split()[2:] == ["active", "2", "1", "–", "–", "4"]


@pytest.mark.parametrize(("is_shown", "seen"), [(False, "nothing"), (True, "the last one")])
def test_stale_figures_show_how_old_the_oldest_is_and_what_plugins_see(is_shown, seen):
    stale = [{"figure": "waiting", "endpoints": 3, "oldest_s": 12.3, "limit_s": 2.0, "shown": is_shown}]
    lines = [" ".join(line.split()) for line in shown({**PAGE, "stale": stale}).splitlines()]
    assert f"waiting 3 12.3 s 2 s {seen}" in lines
    assert "stale" not in shown()


def test_warnings_are_told_behind_problems():
    said = shown({**PAGE, "problems": ["X: bad"], "warnings": ["DUPLICATE_NAME: a\nb", "and 3 more"]}).splitlines()
    assert said[-3:] == ["problem: X: bad", "warning: DUPLICATE_NAME: a\\nb", "warning: and 3 more"]


def test_picture_of_many_endpoints_fits_into_the_terminal():
    many = [{**PAGE["endpoints"][0], "id": f"default/{n:03}", "scrapes_failed_in_a_row": 0} for n in range(200)]
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, height=30, color_system=None)
    console.print(status_sheet({**PAGE, "endpoints": many}).picture(console))
    drawn = file.getvalue().splitlines()
    assert len(drawn) < 30
    assert sum(line.startswith("default/") for line in drawn) > 5
    assert any(line.startswith("and 1") and line.split()[-1] == "more" for line in drawn)
