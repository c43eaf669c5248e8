"""The log of a plugin: bounded, escaped, honest about what it dropped."""

import logging
import unicodedata

import pytest
from hotbay.process.log import (
    BURST_BYTES,
    LINE_BYTES,
    LINES_PER_FEED,
    RATE_BYTES_PER_S,
    RING_CHARS,
    LogSink,
    LogStream,
    escape,
)
from hypothesis import given
from hypothesis import strategies as st


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sink(clock: Clock) -> LogSink:
    return LogSink("faulty#3", now=clock)


def feed(stream: LogStream, data: bytes) -> None:
    while data:
        data = stream.feed(data)


def texts(sink: LogSink) -> list[str]:
    return [line.text for line in sink.lines()]


def test_lines_are_cut_at_newlines_whatever_the_chunks(sink):
    stream = LogStream(sink, "stderr", pid=1)
    for chunk in (b"on", b"e\ntw", b"o\n\nth", b"ree"):
        feed(stream, chunk)
    assert texts(sink) == ["one", "two", ""]
    stream.close()
    assert texts(sink) == ["one", "two", "", "three"]


@given(st.lists(st.binary(max_size=50), max_size=20), st.data())
def test_any_split_gives_the_same_lines(lines, data):
    raw = b"\n".join(lines) + b"\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    whole, parts = LogSink("a", now=Clock()), LogSink("a", now=Clock())
    one, many = LogStream(whole, "stderr", pid=1), LogStream(parts, "stderr", pid=1)
    feed(one, raw)
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        feed(many, raw[start:end])
    assert texts(parts) == texts(whole)


@given(st.binary(max_size=200))
def test_escaped_text_is_printable_or_tab(raw):
    for character in escape(raw):
        assert character == "\t" or unicodedata.category(character)[0] not in "C"
    assert len(escape(raw)) <= 4 * len(raw)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"plain \xc3\xa9", "plain é"),
        (b"\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        (b"forged\r2024 INFO all is well", "forged\\r2024 INFO all is well"),
        (b"tab\tkept", "tab\tkept"),
        (b"not \xff utf-8", "not \\xff utf-8"),
        ("\u202eright to left".encode(), "\\u202eright to left"),
        ("next\u2028line".encode(), "next\\u2028line"),
    ],
)
def test_escape(raw, expected):
    assert escape(raw) == expected


def test_line_of_the_limit_is_one_line(sink):
    stream = LogStream(sink, "stderr", pid=1)
    feed(stream, b"x" * LINE_BYTES + b"\nnext\n")
    assert [len(t) for t in texts(sink)] == [LINE_BYTES, 4]


def test_line_over_the_limit_is_cut_in_pieces(sink):
    stream = LogStream(sink, "stderr", pid=1)
    feed(stream, b"x" * (LINE_BYTES + 1) + b"\nnext\n")
    assert [len(t) for t in texts(sink)] == [LINE_BYTES, 1, 4]


def test_line_is_not_cut_inside_a_character(sink):
    stream = LogStream(sink, "stderr", pid=1)
    feed(stream, b"x" * (LINE_BYTES - 1) + "é\n".encode())
    assert [t[-1] for t in texts(sink)] == ["x", "é"]


def test_escapes_do_not_lengthen_a_line_over_the_limit(sink):
    LogStream(sink, "stderr", pid=1).close(b"\x00" * LINE_BYTES)
    assert max(len(t) for t in texts(sink)) <= LINE_BYTES


def test_ring_keeps_the_newest(sink, clock):
    stream = LogStream(sink, "stderr", pid=1)
    for n in range(100):
        feed(stream, b"%03d" % n + b"x" * 4000 + b"\n")
        clock.now_s += 1
    kept = texts(sink)
    assert kept[-1].startswith("099")
    assert sum(map(len, kept)) <= RING_CHARS
    assert len(kept) >= RING_CHARS // 4100


def test_tail_is_the_end(sink):
    feed(LogStream(sink, "stderr", pid=1), b"first\nsecond\n")
    assert sink.tail(9) == "st\nsecond"


def test_flood_is_dropped_and_counted(sink, clock):
    stream = LogStream(sink, "stderr", pid=1)
    written = 0
    for _ in range(160):
        feed(stream, b"x" * 65536)
        written += 65536
    assert written - BURST_BYTES - LINE_BYTES <= sink.dropped_bytes < written
    assert texts(sink)[-1] == f"dropped {sink.dropped_bytes} bytes"
    clock.now_s += 4
    feed(stream, b"\nafter\n")
    assert texts(sink)[-1] == "after"
    assert f"dropped {sink.dropped_bytes} bytes" in texts(sink)


def test_no_byte_is_lost_uncounted(clock):
    kept: list[int] = []

    class Counting(LogSink):
        def take(self, stream: str, raw: bytes, *, pid: int = 0) -> bool:
            taken = super().take(stream, raw, pid=pid)
            if taken:
                kept.append(len(raw))
            return taken

    sink = Counting("faulty#3", now=clock)
    stream = LogStream(sink, "stderr", pid=1)
    for n in range(300):
        feed(stream, b"x" * (n * 97 % 40_000))
        clock.now_s += 0.01
    stream.close()
    assert sink.dropped_bytes > 0
    assert sum(kept) + sink.dropped_bytes == sum(n * 97 % 40_000 for n in range(300))


def test_continuing_flood_has_a_marker_a_second_not_one_a_line(sink, clock, caplog):
    stream = LogStream(sink, "stderr", pid=1)
    for _ in range(1000):
        feed(stream, b"y" * 1023 + b"\n")
        feed(stream, b"y" * 102_399 + b"\n")
        clock.now_s += 0.01
    markers = [r for r in caplog.records if r.getMessage().startswith("dropped ")]
    assert 5 <= len(markers) <= 20


def test_rate_holds_over_time(sink, clock):
    stream = LogStream(sink, "stderr", pid=1)
    for _ in range(1000):
        feed(stream, (b"z" * 999 + b"\n") * 20)
        clock.now_s += 0.01
    kept = 1000 * 20_000 - sink.dropped_bytes
    assert kept <= BURST_BYTES + 10 * RATE_BYTES_PER_S + 20_000
    assert kept >= 5 * RATE_BYTES_PER_S


def test_feed_returns_after_a_bounded_number_of_lines(sink):
    rest = LogStream(sink, "stderr", pid=1).feed(b"\n" * 1000)
    assert len(rest) == 1000 - LINES_PER_FEED


def test_lines_go_to_the_plugins_logger_with_ids(sink, caplog):
    caplog.set_level(logging.INFO, "hotbay.plugin.faulty")
    feed(LogStream(sink, "stdout", pid=42), b"100% done\n")
    record = caplog.records[-1]
    assert record.name == "hotbay.plugin.faulty"
    assert record.getMessage() == "100% done"
    assert (record.plugin, record.pid, record.stream) == ("faulty#3", 42, "stdout")
    assert record.levelno == logging.INFO


def test_marker_is_a_warning(sink, clock, caplog):
    caplog.set_level(logging.INFO, "hotbay.plugin.faulty")
    stream = LogStream(sink, "stderr", pid=1)
    feed(stream, b"x" * (2 * BURST_BYTES))
    stream.close()
    assert [r.levelno for r in caplog.records if r.getMessage().startswith("dropped ")] == [logging.WARNING]


def test_a_logged_exception_is_one_record_at_its_level(sink, caplog):
    caplog.set_level(logging.WARNING)
    feed(
        LogStream(sink, "stderr", pid=7),
        b"INFO q: fine\nERROR q: ValueError: boom\n      File x\n        y\nINFO q: z\n",
    )
    record, *others = caplog.records
    assert not others
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "ERROR q: ValueError: boom")
    assert (record.traceback, record.plugin, record.pid) == ("      File x\n        y", "faulty#3", 7)
    assert len(texts(sink)) == 5


def test_no_record_waits_for_the_next_bytes(sink, caplog):
    LogStream(sink, "stderr", pid=1).feed(b"ERROR q: last words\nunfin")
    assert [record.getMessage() for record in caplog.records] == ["ERROR q: last words"]


def test_a_marker_comes_after_what_was_before_the_gap(sink, caplog):
    caplog.set_level(logging.INFO)
    sink.take("stderr", b"ERROR q: before")
    sink.drop(5)
    sink.close_gap()
    assert [record.getMessage() for record in caplog.records] == ["ERROR q: before", "dropped 5 bytes"]


@given(st.lists(st.sampled_from([b"ERROR x", b"  y", b"Traceback (most recent call last):", b"z", b"host: dropped"])))
def test_no_text_of_a_plugin_is_a_record_of_the_host(lines):
    sink, records = LogSink("hostile#1", now=Clock()), []
    handler = logging.Handler()
    handler.emit = records.append
    plugin_logger = logging.getLogger("hotbay.plugin.hostile")
    plugin_logger.addHandler(handler)
    try:
        feed(LogStream(sink, "stderr", pid=1), b"".join(line + b"\n" for line in lines))
    finally:
        plugin_logger.removeHandler(handler)
    assert all((record.plugin, record.stream) == ("hostile#1", "stderr") for record in records)
