"""One failing thing says a few lines a minute, and how often it failed (Z07)."""

import io
import json
import logging
from collections import defaultdict

import pytest
from hotbay.observe.flood import BURST, KEYS_MAX, LINES_PER_MINUTE, REFILL_S, FloodLimiter
from hotbay.observe.logs import ACCESS_LOGGER, JsonFormatter, LimitedHandler, set_up_logging, subject_and_code
from hypothesis import given
from hypothesis import strategies as st

MINUTE_S = 60.0


class Clock:
    def __init__(self) -> None:
        self.at_s = 0.0

    def __call__(self) -> float:
        return self.at_s


class Log:
    """A logger whose lines are kept with their time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.stream = io.StringIO()
        self.handler = LimitedHandler(self.stream, now=self.clock)
        self.handler.setFormatter(JsonFormatter())
        self.lines: list[tuple[float, dict]] = []

    def say(self, level, message, *arguments, logger="hotbay.part", **fields):
        record = logging.LogRecord(logger, level, __file__, 1, message, arguments, None)
        vars(record).update(fields)
        self.handler.handle(record)
        self.collect()

    def collect(self):
        text = self.stream.getvalue()
        self.stream.seek(0)
        self.stream.truncate()
        self.lines += [(self.clock.at_s, json.loads(line)) for line in text.splitlines()]

    def most_in_a_minute(self):
        """Of each thing, by what its line says."""
        times = defaultdict(list)
        for at_s, line in self.lines:
            times[line["thing"]].append(at_s)
        return {
            thing: max(sum(begin <= t < begin + MINUTE_S for t in at) for begin in at) for thing, at in times.items()
        }


@pytest.fixture
def log():
    made = Log()
    yield made
    made.handler.close()


def test_new_version_of_a_plugin_is_heard_though_the_old_one_was_held_back(log):
    for version in ("old", "new"):
        for _ in range(50):
            fields = {"plugin": "sample", "digest": f"sha256:{version}", "code": "CRASHED"}
            log.say(logging.WARNING, "crashed plugin=%s code=%s", "sample", "CRASHED", thing=version, **fields)
    assert [line["thing"] for _, line in log.lines] == ["old"] * BURST + ["new"] * BURST


def test_z07_plugin_down_and_scrape_failing_for_ten_minutes(log):
    happened = defaultdict(int)
    for tick in range(20 * 600):
        log.clock.at_s = tick / 20
        log.say(
            logging.WARNING, "scrape_failed endpoint=%s reason=%s: %s", "a", "refused", tick, thing="scrape",
            logger="hotbay.datalayer.scraping.in_loop",
        )  # fmt: skip
        happened["scrape"] += 1
        if tick % 10 == 0:
            # Each attempt is another generation, and says another number.
            label = f"sample#{tick}"
            log.say(logging.INFO, "process_started pid=%s", tick, thing="started", plugin=label)
            log.say(logging.WARNING, "crashed plugin=%s code=%s", label, "CRASHED", thing="crashed", plugin=label)
            happened["started"] += 1
            happened["crashed"] += 1
    log.handler.close()
    log.collect()
    assert max(log.most_in_a_minute().values()) <= LINES_PER_MINUTE
    told = defaultdict(int)
    for _, line in log.lines:
        told[line["thing"]] += 1 + line.get("repeated", 0)
    assert told == happened


def test_first_lines_are_said_at_once_and_the_next_one_counts(log):
    for _ in range(BURST + 3):
        log.say(logging.WARNING, "plan_refused code=%s", "X", thing="a")
    assert [line.get("repeated") for _, line in log.lines] == [None] * BURST
    log.clock.at_s = REFILL_S
    log.say(logging.INFO, "something else", thing="b")
    assert [(line["thing"], line.get("repeated")) for _, line in log.lines[BURST:]] == [("a", 2), ("b", None)]


def test_line_after_held_ones_counts_them(log):
    for tick in range(BURST + 3):
        log.say(logging.WARNING, "plan_refused code=%s", "X", thing=tick)
    log.clock.at_s = REFILL_S
    log.handler._looked_at_s = REFILL_S  # this line comes before the next look
    log.say(logging.WARNING, "plan_refused code=%s", "X", thing="last")
    assert log.lines[-1][1]["thing"] == "last"
    assert log.lines[-1][1]["repeated"] == 3


def test_what_is_held_back_is_said_at_the_end(log):
    for _ in range(BURST + 3):
        log.say(logging.WARNING, "plan_refused code=%s", "X", thing="a")
    log.handler.close()
    log.collect()
    assert log.lines[-1][1]["repeated"] == 2


@pytest.mark.parametrize(
    ("level", "logger"),
    [(logging.INFO, ACCESS_LOGGER), (logging.WARNING, "hotbay.plugin.sample"), (logging.DEBUG, "hotbay.part")],
)
def test_requests_plugin_output_and_debugging_have_every_line(log, level, logger):
    for _ in range(50):
        log.say(level, "request", logger=logger, thing="a")
    assert len(log.lines) == 50


def test_error_that_a_plugin_prints_again_and_again_backs_off(log):
    for tick in range(120):
        log.clock.at_s = float(tick)
        below = {"traceback": f"Traceback (most recent call last):\n  File x, line {tick}\nValueError: x"}
        log.say(logging.ERROR, "%s", "ERROR q: boom", logger="hotbay.plugin.p", thing="same", **below)
        log.say(logging.ERROR, "%s", f"ERROR q: {tick}", logger="hotbay.plugin.p", thing="other")
    said = [line["thing"] for _, line in log.lines]
    assert (said.count("same"), said.count("other")) == (BURST + 1, 120)


def test_errors_of_plugins_do_not_push_out_what_the_host_holds_back(log):
    for _ in range(BURST + 1):
        log.say(logging.WARNING, "crashed plugin=%s", "p", thing="host")
    for tick in range(KEYS_MAX + 1):
        log.say(logging.ERROR, "%s", f"ERROR {tick}", logger="hotbay.plugin.p", thing="plugin")
    log.say(logging.WARNING, "crashed plugin=%s", "p", thing="host")
    assert [line["thing"] for _, line in log.lines].count("host") == BURST


def made(message, *arguments, **fields):
    record = logging.LogRecord("hotbay.part", logging.WARNING, __file__, 1, message, arguments, None)
    vars(record).update(fields)
    return record


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (made("crashed plugin=%s", "a#1"), made("crashed plugin=%s", "a#2"), True),
        (made("crashed plugin=%s", "a"), made("crashed plugin=%s", "b"), False),
        (made("crashed plugin=%s", "a", digest="1"), made("crashed plugin=%s", "a", digest="2"), False),
        (made("bad source=%s digest=%s", "a", "1"), made("bad source=%s digest=%s", "a", "2"), True),
        (made("crashed plugin=%s", "a", code="X"), made("crashed plugin=%s", "a", code="Y"), False),
        (made("failed source=%s code=%s", "a", "X"), made("failed source=%s code=%s", "a", "Y"), False),
        (made("started pid=%s", 1, plugin="a#1"), made("started pid=%s", 2, plugin="a#2"), True),
        (made("started pid=%s", 1, plugin="a#1"), made("ended pid=%s", 1, plugin="a#1"), False),
        (made("request failed", request="1"), made("request failed", request="2"), True),
        (made("phase plugin=%s phase=%s", "a", "shadow"), made("phase plugin=%s phase=%s", "a", "canary"), False),
        (made("call operation=%s who=%s", "pin", "x"), made("call operation=%s who=%s", "unpin", "x"), False),
    ],
)
def test_one_thing_is_what_was_said_of_whom_with_which_code(one, other, same):
    assert (subject_and_code(one) == subject_and_code(other)) is same


def test_errors_of_two_kinds_are_two_things():
    one, other = made("failed"), made("failed")
    one.exc_info = (ValueError, ValueError("x"), None)
    other.exc_info = (KeyError, KeyError("x"), None)
    assert subject_and_code(one) != subject_and_code(other)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 90)), max_size=200))
def test_no_minute_has_more_than_the_limit_and_nothing_is_lost(steps):
    limiter: FloodLimiter[int, int] = FloodLimiter()
    now_s, said, counted, given_count = 0.0, defaultdict(list), defaultdict(int), defaultdict(int)

    def take(told):
        for key, repeated in told:
            said[key].append(now_s)
            counted[key] += 1 + repeated

    for key, step_s in steps:
        now_s += step_s
        take(limiter.overdue(now_s))
        given_count[key] += 1
        repeated = limiter.admit(key, key, now_s)
        if repeated is not None:
            take([(key, repeated)])
    for at in said.values():
        assert max(sum(begin <= t < begin + MINUTE_S for t in at) for begin in at) <= LINES_PER_MINUTE
    take(limiter.close())
    assert counted == given_count


@pytest.mark.parametrize(("others", "held"), [(KEYS_MAX - 1, True), (KEYS_MAX, False)])
def test_memory_is_bounded_and_the_most_silent_is_forgotten(others, held):
    limiter: FloodLimiter[int, None] = FloodLimiter()
    for _ in range(BURST):
        assert limiter.admit(-1, None, 0) is not None
    for key in range(others):
        assert limiter.admit(key, None, 0) == 0
    assert (limiter.admit(-1, None, 0) is None) is held


def test_set_up_logging_limits(capsys):
    root = logging.getLogger()
    before = root.handlers[:], root.level, [logging.getLogger(n).level for n in (ACCESS_LOGGER, "watchfiles")]
    try:
        set_up_logging("info", "json")
        for tick in range(100):
            logging.getLogger("hotbay.part").warning("scrape_failed endpoint=%s: %s", "a", tick)
        root.handlers[0].close()
    finally:
        root.handlers[:], root.level = before[0], before[1]
        for name, level in zip((ACCESS_LOGGER, "watchfiles"), before[2], strict=True):
            logging.getLogger(name).setLevel(level)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line.get("repeated") for line in lines] == [None] * BURST + [100 - BURST - 1]
