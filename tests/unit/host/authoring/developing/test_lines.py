"""Lines of `hotbay dev`: one for a save, and what a plugin says cannot act on a terminal."""

import pytest
from hotbay.authoring.developing.lines import line_of

LIVE = {
    "event": "live",
    "files": ("a.py",),
    "built": False,
    "packed_ms": 4,
    "live_ms": 310,
    "generation": 3,
    "changes": (),
}
REFUSED = {
    "event": "refused", "files": ("a.py",), "code": "START_FAILED", "message": "m#3: no", "place": "/p/a.py:4",
    "traceback": '  File "/p/a.py", line 4\nNo: no', "hint": "", "generation": 2,
}  # fmt: skip


def test_a_save_that_is_live_is_one_line() -> None:
    assert line_of(LIVE) == "saved a.py → packed 4 ms → live 310 ms, generation 3 (types and parameters as before)"
    assert line_of({**LIVE, "changes": ("+type b", "-type c")}).endswith("(+type b; -type c)")


def test_a_save_that_is_refused_says_where_and_what_goes_on() -> None:
    first, second, *below = line_of(REFUSED).splitlines()
    assert first == "saved a.py → not live: generation 2 goes on"
    assert second == "  /p/a.py:4: START_FAILED: m#3: no"
    assert len(below) == 2


def test_before_the_first_version_nothing_goes_on() -> None:
    assert "nothing runs yet" in line_of({**REFUSED, "generation": None})


def test_what_acts_on_a_terminal_is_escaped() -> None:
    page = {"event": "output", "plugin": "m#1", "line": "\x1b[2J", "place": "", "traceback": "a\x07"}
    assert "\x1b" not in line_of(page)
    assert "\x07" not in line_of(page)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ({"event": "begun", "plugin": "m", "bundled": True}, "beside the bundled scorers"),
        ({"event": "begun", "plugin": "m", "bundled": False}, "building m and what it depends on: the"),
        ({"event": "back", "generation": 4, "digest": "sha256:0123"}, "generation 4 answers in its place"),
        ({"event": "crashed", "code": "CRASHED", "message": "m#2 ended", "place": "/p/a.py:1"}, "crashed: /p/a.py:1: CRASHED"),
        ({"event": "crashed", "code": "CRASHED", "message": "m#2 ended", "place": ""}, "crashed: CRASHED: m#2 ended"),
        ({"event": "debugger", "address": "127.0.0.1:1"}, "waiting for a debugger on 127.0.0.1:1"),
        ({"event": "host", "level": "warning", "line": "x"}, "host | x"),
        ({"event": "output", "plugin": "m#1", "line": "x", "place": "/p/a.py:1", "traceback": ""}, "m#1 | /p/a.py:1: x"),
        ({"event": "passed_over", "files": ("a", "b")}, "saved a, b → passed over"),
        ({"event": "stopped"}, "stopped"),
        ({"event": "unchanged", "files": ("README.md",)}, "saved README.md → the package is as before"),
        ({**REFUSED, "hint": "Do it.", "place": ""}, "what to do: Do it."),
        ({**LIVE, "built": True, "changes": None}, "→ built 4 ms →"),
        (
            {
                "event": "serving", "plugin": "m", "url": "http://h:1", "generation": 1, "endpoints": ("http://a", "http://b"),
                "simulated": True, "types": ("m-scorer",), "socket": "/s",
            },
            "m serves on http://h:1, generation 1, in front of http://a, http://b (simulated)",
        ),
    ],
)  # fmt: skip
def test_each_word_has_its_line(page: dict[str, object], words: str) -> None:
    assert words in line_of(page)
