"""Reading metrics pages: Prometheus' text form and OpenMetrics."""

import math
import re
from pathlib import Path

import pytest
from hotbay.datalayer.pages.exposition import (
    FREE_PAGE_BYTES,
    MAX_LINE_BYTES,
    MAX_PAGE_LINES,
    MAX_WANTED_BYTES,
    ExpositionError,
    Form,
    Page,
    PageMemory,
    PageReader,
    form_of,
)
from hotbay.datalayer.pages.line_search import MAX_LINES
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

PAGES = Path(__file__).parents[4] / "data" / "metrics"


def read_one(line: str, name: str = "a") -> float | None:
    """The value of the only series of `name`, None when there is none."""
    samples = PageReader([name]).read(line.encode()).samples
    return samples[name][0].value if samples else None


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.txt")), ids=lambda page: page.stem)
def test_every_sample_of_a_real_page_reads_as_prometheus_client_reads_it(page: Path) -> None:
    # Without TYPE lines: by them prometheus_client renames counters that lack the usual suffix.
    lines = [line for line in page.read_text().splitlines() if not line.startswith("#")]
    expected: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            expected.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    read = PageReader(expected).read(page.read_bytes())
    assert (read.bad_lines, read.duplicates) == (0, 0)
    assert {name: [(dict(s.labels), s.value) for s in series] for name, series in read.samples.items()} == expected
    assert len(expected) > 10


def test_only_wanted_names_are_read_and_names_are_matched_whole() -> None:
    page = b"ab 1\na 2\na_total 3\nxa 4\n# a 5\na:b 6\n"
    samples = PageReader(["a"]).read(page).samples
    assert {name: [s.value for s in series] for name, series in samples.items()} == {"a": [2.0]}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("a 1.5E+3\n", 1500.0),
        ("a 9.4E12\n", 9.4e12),
        ('a{b="c",} 2\n', 2.0),
        ("\n\na 3\n\n", 3.0),
        ("a 4\r\nb 5\r\n", 4.0),
        ("a\t5\t\n", 5.0),
        ("  \ta 6\n", 6.0),
        ('a{b="c"}11\n', 11.0),
        ('a { b = "c" , d = "e" } 7\n', 7.0),
        ("a{} 8\n", 8.0),
        ("a -9\n", -9.0),
        ("a 10 1700000000000\n", 10.0),
        ("a 12", 12.0),
        ("a +Inf\n", math.inf),
        ("a -Inf\n", -math.inf),
    ],
)
def test_m07_spellings_of_a_sample_read_as_by_prometheus_client(line: str, value: float) -> None:
    families = [f for f in text_string_to_metric_families(line) if f.name == "a"]
    assert families[0].samples[0].value == value
    assert read_one(line) == value


def test_not_a_number_is_a_value() -> None:
    value = read_one("a NaN\n")
    assert value is not None
    assert math.isnan(value)


def test_m05_escapes_and_separators_in_label_values_are_exact() -> None:
    page = r'a{l="q\"uo\\te\nnl,}{=#",u="größe ☃",x="\t"} 1' + "\n"
    (sample,) = PageReader(["a"]).read(page.encode()).samples["a"]
    assert sample.labels == {"l": 'q"uo\\te\nnl,}{=#', "u": "größe ☃", "x": "\\t"}


@pytest.mark.parametrize(
    "bad",
    [
        b"a{ 3",
        b"a",
        b"a ",
        b"a x",
        b"a 1_000",
        "a \uff11".encode(),
        b'a{b="c} 1',
        b"a{b=c} 1",
        b'a{b="c" d="e"} 1',
        b'a{b="c",b="d"} 1',
        b'a{1b="c"} 1',
        b'a{b="\xff"} 1',
        b"a 1 2 3",
        b"a 1 # {} 2",
    ],
)
def test_m02_one_bad_line_costs_only_itself(bad: bytes) -> None:
    page = PageReader(["a", "b", "c"]).read(b"b 1\n" + bad + b"\nc 2\n")
    assert {name: series[0].value for name, series in page.samples.items()} == {"b": 1.0, "c": 2.0}
    assert page.bad_lines == 1


@pytest.mark.parametrize(
    "page",
    [
        "a 1\nb 2\na 3\n",
        "# TYPE a counter\n# HELP a x\n# HELP a y\nb 2\n# TYPE a gauge\na 3\n",
        "# TYPE b histogram\na 3\nb 2\n",
    ],
)
def test_m08_comments_do_not_matter_and_a_family_may_stand_in_two_places(page: str) -> None:
    assert read_one(page, "a") == 3.0
    assert read_one(page, "b") == 2.0


def test_m16_of_a_series_that_stands_twice_the_last_wins_and_is_counted() -> None:
    page = PageReader(["a"]).read(b'a{l="x"} 1\na{l="y"} 5\na{l="x"} 2 0\na{l="x"} 3 1900000000000\n')
    assert [(s.labels["l"], s.value) for s in page.samples["a"]] == [("x", 3.0), ("y", 5.0)]
    assert page.duplicates == 2


@pytest.mark.parametrize(
    "body", [b"<html>a 1</html>", b"\n <!doctype html>\na 1\n", b"\x1f\x8b\x08", b"\0a 1\n", b"{\0"[1:]]
)
def test_m12_what_is_no_page_at_all_is_refused(body: bytes) -> None:
    with pytest.raises(ExpositionError, match="not a Prometheus text page"):
        PageReader(["a"]).read(body)


@pytest.mark.parametrize(
    "line",
    [
        "b 1",
        'b{c="d"}1',
        "b NaN 1700000000000",
        "b -Inf\r",
        '{"b",c="}"} .5',
        ' b { c = "\\"" } 1e3 # {t="x"} 1',
        "b_:c +1",
    ],
)
def test_a_page_without_what_was_wanted_is_empty(line: str) -> None:
    for body in (line, f"{line}\n", f"# TYPE b gauge\n\nOK\n{line}\n"):
        page = PageReader(["a"]).read(body.encode())
        assert (dict(page.samples), page.bad_lines) == ({}, 0)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\n", b" \r\n\t", b"OK", b"OK\n", b'{"a":1}', b"# nothing\n", b"# TYPE\n", b"#TYPED a gauge\n", b"# Error\n# EOFs",
        b"error 404 not found\n", b'b{c="d"\n} 1\n', b'b{c="d}\n1\n', b"b\n1\n", b"b x\n", b"# TYPE a gauge\nOK\n",
    ],
)  # fmt: skip
def test_a_text_without_any_sample_is_no_page_each_time_and_says_so(body: bytes) -> None:
    memory = PageMemory()
    reader = PageReader(["a"])
    reader.read(b"b 1\n", memory=memory)
    for _ in range(2):
        with pytest.raises(ExpositionError, match="no sample") as caught:
            reader.read(body, memory=memory)
        assert caught.value.reason == "not_metrics"
    assert str(caught.value).endswith("it is empty" if not body else f"it starts with {body[:40]!r}")


@pytest.mark.parametrize("body", [b"OK", b'{"a":1}', b"b x", b"# TYPE a gauge\nOK", b'b{c="d'])
def test_an_end_alone_makes_no_page_of_other_text(body: bytes) -> None:
    for form in Form:
        with pytest.raises(ExpositionError, match="no sample"):
            PageReader(["a"]).read(body + b"\n# EOF\n", form)


@pytest.mark.parametrize(
    "body",
    [
        b"# EOF", b"# EOF\n", b"# EOF\r\n", b"\n# nothing yet\n# EOF\n", b"# TYPE a gauge\n", b"# HELP a What it is.\n# TYPE a gauge",
        b" #\tTYPE a gauge\r\n\r\n", b"# nothing\n# HELP a\n",
    ],
)  # fmt: skip
def test_a_registry_that_is_still_empty_gives_an_empty_page(body: bytes) -> None:
    reader, memory = PageReader(["a"]), PageMemory()
    for form in Form if b"EOF" in body else (Form.TEXT,):
        for kept in (None, memory):
            assert reader.read(body, form, kept) == Page()
    assert reader.read(b"a 2\n", memory=memory).samples["a"][0].value == 2.0
    assert reader.read(body, memory=memory) == Page()


def test_a_broken_line_of_a_wanted_name_is_counted_where_there_is_no_other() -> None:
    assert PageReader(["a"]).read(b"a x\n").bad_lines == 1


def test_lines_of_wanted_names_may_have_so_many_bytes_together_and_no_more() -> None:
    lines = [b'a{l="%04d%s"} 1\n' % (number, b"x" * 1000) for number in range(520)]
    most = MAX_WANTED_BYTES // (len(lines[0]) - len(b"a\n"))
    assert len(PageReader(["a"]).read(b"".join(lines[:most])).samples["a"]) == most
    with pytest.raises(ExpositionError, match="more than 524288 bytes"):
        PageReader(["a"]).read(b"".join(lines[: most + 1]))


def test_a_page_of_many_wanted_lines_is_read_in_steps_and_one_of_few_at_once() -> None:
    for count, most in ((100, 0), (4096, 30)):
        page = b"".join(b'a{l="%d"} 1\n' % number for number in range(count))
        turns = sum(1 for _ in PageReader(["a"]).reading(page))
        assert most // 2 <= turns <= most
        memory = PageMemory()
        whole = PageReader(["a"]).read(page, memory=memory)
        assert len(whole.samples["a"]) == count
        assert not list(PageReader(["a"]).reading(page, memory=memory)), "it says the same"


def test_a_large_page_may_have_so_many_lines_and_no_more() -> None:
    line = b"b 12\n"
    assert len(line) * MAX_PAGE_LINES > FREE_PAGE_BYTES
    page = b"a 1\n" + line * (MAX_PAGE_LINES - 1)
    assert PageReader(["a"]).read(page).samples["a"][0].value == 1.0
    with pytest.raises(ExpositionError, match="more than 131072 lines") as caught:
        PageReader(["a"]).read(page + line)
    assert caught.value.reason == "too_large"
    # A smaller page is looked at, whatever its lines.
    assert PageReader(["a"]).read(b"a 1\n" + b"\n" * (FREE_PAGE_BYTES - 4)).samples["a"]


def test_a_line_may_have_its_longest_length_and_no_more() -> None:
    for excess, bad_lines in ((0, 0), (1, 1)):
        # The length counts from the name's end on.
        filler = "x" * (MAX_LINE_BYTES - len('{l=""} 1') + excess)
        page = PageReader(["a"]).read(f'a{{l="{filler}"}} 1\n'.encode())
        assert page.bad_lines == bad_lines


def test_wanted_lines_may_have_their_largest_number_and_no_more() -> None:
    lines = [b'a{l="%d"} 1\n' % number for number in range(MAX_LINES + 1)]
    assert len(PageReader(["a"]).read(b"".join(lines[1:])).samples["a"]) == MAX_LINES
    with pytest.raises(ExpositionError, match="more than 4096 lines"):
        PageReader(["a"]).read(b"".join(lines))


OPENMETRICS = (
    "# TYPE a gauge\n"
    'a{l="x"} 1.5 1700000000.123\n'
    "# TYPE b counter\n"
    'b_total 7 # {trace_id="q"} 0.5 1700000000.5\n'
    'b_total{l="y"} 8 1700000001 # {t="# }\\""} 1\n'
    "# EOF\n"
)


def test_openmetrics_is_read_past_times_and_exemplars_as_by_prometheus_client() -> None:
    expected = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in openmetrics_families(re.sub('b_total{l="y"}.*\n', "", OPENMETRICS))
        for sample in family.samples
    }
    page = PageReader(["a", "b_total"]).read(OPENMETRICS.encode(), Form.OPENMETRICS)
    read = {(name, tuple(sorted(s.labels.items()))): s.value for name, series in page.samples.items() for s in series}
    assert read == expected | {("b_total", (("l", "y"),)): 8.0}
    assert page.bad_lines == 0


@pytest.mark.parametrize(
    "cut",
    [OPENMETRICS[: -len("# EOF\n")], OPENMETRICS[:-2], OPENMETRICS[:30], "", OPENMETRICS + "\n", "a 1\n# EOF x\n"],
)
def test_openmetrics_without_its_end_is_no_page(cut: str) -> None:
    with pytest.raises(ExpositionError, match="# EOF") as caught:
        PageReader(["a"]).read(cut.encode(), Form.OPENMETRICS)
    assert caught.value.reason == "truncated"


@pytest.mark.parametrize("end", ["# EOF\n", "# EOF", "# EOF\r\n"])
def test_the_end_of_openmetrics_may_lack_its_line_feed(end: str) -> None:
    assert PageReader(["a"]).read(f"a 2\n{end}".encode(), Form.OPENMETRICS).samples["a"][0].value == 2.0
    assert not PageReader(["b"]).read(f"a 2\n{end}".encode(), Form.OPENMETRICS).samples


def test_a_page_that_ends_as_openmetrics_is_read_so_whatever_its_content_type_says() -> None:
    line = b'a_bucket{le="1"} 3 # {trace_id="x"} 0.5\n'
    assert PageReader(["a_bucket"]).read(line + b"# EOF\n").samples["a_bucket"][0].value == 3.0
    assert PageReader(["a_bucket"]).read(line).bad_lines == 1


@pytest.mark.parametrize("bad", ["a 1 x", "a 1 NaN", "a 1 2 3", "a 1 # x", "a 1 # {} x", "a 1 2 # {", "a 1 # {} 1 2 3"])
def test_m02_a_bad_line_of_openmetrics_costs_only_itself(bad: str) -> None:
    page = PageReader(["a", "b", "c"]).read(f"b 1\n{bad}\nc 2\n# EOF\n".encode(), Form.OPENMETRICS)
    assert {name: series[0].value for name, series in page.samples.items()} == {"b": 1.0, "c": 2.0}
    assert page.bad_lines == 1


@pytest.mark.parametrize(
    ("content_type", "form"),
    [
        (b"", Form.TEXT),
        (b"text/plain; version=0.0.4", Form.TEXT),
        (b"text/plain; version=1.0.0; charset=utf-8", Form.TEXT),
        (b"application/openmetrics-text; version=1.0.0; charset=utf-8", Form.OPENMETRICS),
    ],
)
def test_the_content_type_names_the_form(content_type: bytes, form: Form) -> None:
    assert form_of(content_type) is form


def test_a_label_name_in_quotes_is_read() -> None:
    (sample,) = PageReader(["a"]).read(b'a{"model.name"="x",b="y"} 1\n').samples["a"]
    assert sample.labels == {"model.name": "x", "b": "y"}


def test_with_a_memory_wanted_lines_that_did_not_change_give_the_very_same_page() -> None:
    reader, memory = PageReader(["a"]), PageMemory()
    first = reader.read(b"a 1\nb 1\n", memory=memory)
    assert reader.read(b"a 1\nb 2\n", memory=memory) is first
    assert reader.read(b"a 2\nb 2\n", memory=memory).samples["a"][0].value == 2.0
    assert reader.read(b"a 2\n# EOF\n", Form.OPENMETRICS, memory).samples["a"][0].value == 2.0
    with pytest.raises(ExpositionError):
        reader.read(b"<html>", memory=memory)
    assert reader.read(b"a 1\n", memory=memory).samples["a"][0].value == 1.0


@given(st.binary() | st.text(alphabet='a{}b="\\,\n\r\t #1e+.N').map(str.encode))
def test_no_bytes_raise_anything_but_the_modules_own_error(body: bytes) -> None:
    try:
        page = PageReader(["a", "b"]).read(b"a" + body)
    except ExpositionError:
        return
    assert page.bad_lines >= 0


label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True)
label_values = st.text(st.characters(exclude_categories=["Cs"]))


values = st.floats(allow_nan=False) | st.integers(-(10**18), 10**18).map(float)
series = st.dictionaries(st.sampled_from(["l", "_m", "n0"]), st.text(max_size=8), max_size=3)
families = st.dictionaries(
    st.sampled_from(["a", "ab", "b", "c0"]),
    # Of a series that stands twice the last one counts here, and prometheus_client keeps the first one of OpenMetrics.
    st.lists(st.tuples(series, values), min_size=1, max_size=3, unique_by=lambda it: frozenset(it[0].items())),
    min_size=1,
)


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def lines_of(name: str, samples: list[tuple[dict[str, str], float]], spelling: str) -> str:
    return "".join(
        f"{name}{'{' + ','.join(f'{k}={chr(34)}{escaped(v)}{chr(34)}' for k, v in labels.items()) + '}' if labels else ''}"
        f" {format(value, spelling)}\n"
        for labels, value in samples
    )


@given(families, st.sampled_from(["r", ".17g", ".17e", ".17E"]), st.booleans())
def test_generated_pages_read_as_prometheus_client_reads_them(
    wanted: dict[str, list[tuple[dict[str, str], float]]], spelling: str, openmetrics: bool
) -> None:
    spelling = "" if spelling == "r" else spelling
    page = "".join(f"# TYPE {name} gauge\n{lines_of(name, samples, spelling)}" for name, samples in wanted.items())
    families_of, end = (openmetrics_families, "# EOF\n") if openmetrics else (text_string_to_metric_families, "")
    expected: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in families_of(page + end):
        for sample in family.samples:
            expected.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    form = Form.OPENMETRICS if openmetrics else Form.TEXT
    read = PageReader(wanted).read((page + end).encode(), form)
    assert read.bad_lines == 0
    assert not PageReader(["z"]).read((page + end).encode(), form).samples, "whatever samples it has, it is a page"
    assert {name: {frozenset(s.labels.items()): s.value for s in it} for name, it in read.samples.items()} == expected


@given(st.dictionaries(label_names, label_values), st.floats(allow_nan=False))
def test_whatever_is_written_is_read_back(labels: dict[str, str], value: float) -> None:
    escaped = {k: v.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for k, v in labels.items()}
    text = ",".join(f'{name}="{label}"' for name, label in escaped.items())
    (sample,) = PageReader(["a"]).read(f"a{{{text}}} {value!r}\n".encode()).samples["a"]
    assert (dict(sample.labels), sample.value) == (labels, value)
