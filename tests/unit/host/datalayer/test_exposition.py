"""Reading Prometheus text pages."""

import math
from pathlib import Path

import pytest
from hotbay.datalayer.exposition import MAX_LINE_BYTES, MAX_WANTED_LINES, ExpositionError, PageReader
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

PAGES = Path(__file__).parents[3] / "data" / "metrics"


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


@pytest.mark.parametrize("body", [b"", b"\n", b" \r\n\t", b"# nothing\n", b"b 1\n"])
def test_a_page_without_what_was_wanted_is_empty(body: bytes) -> None:
    page = PageReader(["a"]).read(body)
    assert (dict(page.samples), page.bad_lines) == ({}, 0)


def test_a_line_may_have_its_longest_length_and_no_more() -> None:
    for excess, bad_lines in ((0, 0), (1, 1)):
        # The length counts from the name's end on.
        filler = "x" * (MAX_LINE_BYTES - len('{l=""} 1') + excess)
        page = PageReader(["a"]).read(f'a{{l="{filler}"}} 1\n'.encode())
        assert page.bad_lines == bad_lines


def test_wanted_lines_may_have_their_largest_number_and_no_more() -> None:
    lines = [b'a{l="%d"} 1\n' % number for number in range(MAX_WANTED_LINES + 1)]
    assert len(PageReader(["a"]).read(b"".join(lines[1:])).samples["a"]) == MAX_WANTED_LINES
    with pytest.raises(ExpositionError, match="4097 lines"):
        PageReader(["a"]).read(b"".join(lines))


@given(st.binary() | st.text(alphabet='a{}b="\\,\n\r\t #1e+.N').map(str.encode))
def test_no_bytes_raise_anything_but_the_modules_own_error(body: bytes) -> None:
    try:
        page = PageReader(["a", "b"]).read(b"a" + body)
    except ExpositionError:
        return
    assert page.bad_lines >= 0


label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True)
label_values = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(label_names, label_values), st.floats(allow_nan=False))
def test_whatever_is_written_is_read_back(labels: dict[str, str], value: float) -> None:
    escaped = {k: v.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for k, v in labels.items()}
    text = ",".join(f'{name}="{label}"' for name, label in escaped.items())
    (sample,) = PageReader(["a"]).read(f"a{{{text}}} {value!r}\n".encode()).samples["a"]
    assert (dict(sample.labels), sample.value) == (labels, value)
