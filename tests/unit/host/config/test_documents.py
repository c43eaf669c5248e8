"""What the reader makes of documents, and what it refuses, with places."""

import json
import re
import resource
import time

import pytest
from hotbay.config.documents import MAX_BYTES, MAX_DEPTH, decode_text, is_blank, load_document
from hotbay.errors import InputError, Place
from hypothesis import example, given
from hypothesis import strategies as st

_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("no", "no"),
        ("012", "012"),
        ("1_000", "1_000"),
        ("0x1F", "0x1F"),
        ("0o17", "0o17"),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("NaN", "NaN"),
        ("=", "="),
        ("<<", "<<"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1e3", 1000.0),
        ("1.0e+3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!float 1", 1.0),
    ],
)
def test_scalar_is_read_as_json_would_have_it(document, written, value):
    read = document(f"a: {written}").value["a"]
    assert (type(read), read) == (type(value), value)


def test_c02_words_of_yaml_1_1_stay_texts_also_as_keys(document):
    assert document("on: no\ny: off").value == {"on": "no", "y": "off"}


def test_json_indented_with_tabs_is_read(document):
    assert document('{\n\t"a":\t[1,\t2]\n}').value == {"a": [1, 2]}


def test_c06_yaml_and_json_give_the_same_numbers(document):
    assert document('{"weight": 1e3}').value == document("weight: 1e3").value == {"weight": 1000.0}


@pytest.mark.parametrize(
    "written", [".nan", ".inf", "-.INF", "1e999", "18446744073709551616", "-9223372036854775809", "1" * 5000]
)
def test_number_that_no_json_reader_holds_is_refused_with_its_place(document_problems, written):
    (problem,) = document_problems(f"a:\n  - {written}")
    assert (problem.code, problem.place, problem.path) == ("CONFIG_INVALID", Place("f.yaml", 2, 5), "a[0]")


def test_c04_digest_of_digits_asks_for_quotes(document_problems):
    (problem,) = document_problems("digest: " + "1" * 64)
    assert "quotes" in problem.hint


def test_c01_weight_twice_names_both_lines(document_problems):
    (problem,) = document_problems("- pluginRef: a\n  weight: 1\n  name: b\n  weight: 2\n")
    assert (problem.code, problem.place, problem.path) == ("DUPLICATE_KEY", Place("f.yaml", 4, 3), "[0].weight")
    assert "lines 2 and 4" in problem.message


def test_c01_top_level_plugins_twice_names_both_lines(document_problems):
    (problem,) = document_problems("plugins: []\nkind: x\nplugins: []\n")
    assert problem.code == "DUPLICATE_KEY"
    assert "lines 1 and 3" in problem.message


@pytest.mark.parametrize("merge", ["<<: [*a, *b]", "<<: *a\n  <<: *b"], ids=["key from two merges", "merge key twice"])
def test_c01_duplicate_only_through_merge_is_refused(document_problems, merge):
    problems = document_problems(f"a: &a {{weight: 1}}\nb: &b {{weight: 2}}\nc:\n  {merge}\n")
    assert [p.code for p in problems] == ["DUPLICATE_KEY"]
    assert re.search(r"lines \d and \d", problems[0].message)


def test_c01_own_key_overrides_merged_ones(document):
    value = document("a: &a {weight: 1, x: 1}\nb: &b {weight: 2}\nc: {<<: [*a, *b], weight: 3}\n").value
    assert value["c"] == {"x": 1, "weight": 3}


def test_merging_one_mapping_by_two_ways_is_no_duplicate(document):
    text = "a: &a {x: 1}\nb: &b {<<: *a}\nc: &c {<<: *a}\nd: {<<: [*b, *c, *a]}\n"
    assert document(text).value["d"] == {"x": 1}


def test_duplicate_in_aliased_mapping_is_reported_once(document_problems):
    assert len(document_problems("a: &a {x: 1, x: 2}\nb: [*a, *a]\nc: {<<: *a}\n")) == 1


def test_all_problems_are_reported_in_order_of_place(document_problems):
    problems = document_problems("a: .nan\n1: x\nb: 1\nb: 2\nc: !!set {x}\n? [k]\n: v\n")
    assert [p.place.line for p in problems] == [1, 2, 4, 5, 6]


def test_number_of_problems_is_bounded(document_problems):
    problems = document_problems("[" + ".nan, " * 500 + "]")
    assert len(problems) == 101
    assert "400 more" in problems[-1].message


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a: [1, 2\nb: 3\n", 2, 2),
        ("a:\tb", 1, 3),
        ("a:\n\t- b", 2, 1),
        ("a: 1\n---\nb: 2", 2, 1),
        ("a: *nowhere", 1, 4),
        ("a: '\x07'", 1, 5),
        ("a: &a [*a]", 1, 4),
        ("a: &a {<<: *a, b: 1}", 1, 4),
        ("a: {<<: 1}", 1, 9),
        ('a: "\\ud800"', 1, 4),
        ("a: !!python/object:os.system {}", 1, 4),
        ("a: !!int x", 1, 4),
        ("a: !local 1", 1, 4),
    ],
)
def test_c07_text_that_is_no_document_is_refused_with_its_place(document_problems, text, line, column):
    problem = document_problems(text)[0]
    assert (problem.code, problem.place) == ("CONFIG_INVALID", Place("f.yaml", line, column))


def test_places_of_values_and_keys_are_kept(document):
    read = document("a:\n  - x: 1\n    yy: {z: 2}\n")
    assert read.place(("a", 0, "yy", "z")) == Place("f.yaml", 3, 13)
    assert read.key_place(("a", 0, "yy")) == Place("f.yaml", 3, 5)
    assert read.place(()) == Place("f.yaml", 1, 1)


def test_place_of_an_item_that_is_asked_for_as_a_key_is_that_of_the_item(document):
    read = document("a:\n- 1\n- 2\n")
    assert read.key_place(("a", 1)) == read.place(("a", 1)) == Place("f.yaml", 3, 3)
    assert read.key_place(("b", "c")) == Place("f.yaml", 1, 1)


def test_place_of_absent_value_is_that_of_its_nearest_parent(document):
    read = document("a:\n  b: 1\n")
    assert read.place(("a", "c", 3)) == read.key_place(("a", "c")) == Place("f.yaml", 2, 3)


def test_documents_are_equal_that_say_the_same(document):
    assert document("a: [1, 2]  # x") == document("{'a': [1, 2]}")


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n...\n", "\ufeff\n"])
def test_text_without_content_is_an_empty_document(document, text):
    assert is_blank(text)
    assert document(text).value is None


@pytest.mark.parametrize("text", ["a", "---\na: 1", "--- a", "# x\n- b"])
def test_text_with_content_is_not_blank(text):
    assert not is_blank(text)


def test_c13_alias_bomb_is_refused_before_it_grows(document_problems):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    (problem,) = document_problems("\n".join(lines))
    assert problem.code == "CONFIG_TOO_LARGE"
    # A second is the field failure's bound; times five, because other work shares the machine.
    assert time.perf_counter() - started < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 50_000


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [" + "x, " * 100 + "]\nb: &b [" + "*a, " * 100 + "]\nc: [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]",
        "a: &a " + "x" * 100_000 + "\nb: [" + "*a, " * 100 + "]",
        "a: &a {" + ", ".join(f"k{i}: 1" for i in range(400)) + "}\nb: [" + "{<<: *a}, " * 400 + "]",
        "v0: &a0 {k: 1}\n" + "".join(f"v{i}: &a{i} {{<<: *a{i - 1}}}\n" for i in range(1, 100)) + "<<: *a99\n",
        "a: &a " + "[" * 20 + "]" * 20 + "\nb: " + "[" * 20 + "*a" + "]" * 20,
        "[" * 10_000,
        "- " * (MAX_DEPTH + 1) + "x",
        "x" * (MAX_BYTES + 1),
        "é" * (MAX_BYTES // 2 + 1),
    ],
    ids=[
        "items",
        "characters",
        "merged keys",
        "merges in merges",
        "aliased depth",
        "flow depth",
        "block depth",
        "bytes",
        "é",
    ],
)
def test_document_over_a_bound_is_refused(document_problems, text):
    (problem,) = document_problems(text)
    assert problem.code == "CONFIG_TOO_LARGE"


def test_document_of_too_many_values_is_refused(document, document_problems, monkeypatch):
    # Scaled down a thousand times: the real bound takes seconds to reach.
    monkeypatch.setattr("hotbay.config.documents.MAX_VALUES", 100)
    document("[" + "1," * 99 + "]")
    (problem,) = document_problems("[" + "1," * 100 + "]")
    assert (problem.code, problem.place) == ("CONFIG_TOO_LARGE", Place("f.yaml", 1, 203))


@pytest.mark.parametrize("text", ["- " * (MAX_DEPTH - 1) + "x", "'" + "é" * (MAX_BYTES // 2 - 1) + "'"])
def test_document_at_a_bound_is_read(document, text):
    document(text)


@pytest.mark.parametrize(
    "data",
    [
        "a: ü\nb: 1\n".encode(),
        "\ufeffa: ü\nb: 1\n".encode(),
        "\ufeffa: ü\nb: 1\n".encode("utf-16-le"),
        "\ufeffa: ü\nb: 1\n".encode("utf-16-be"),
        "a: ü\r\nb: 1\r\n".encode(),
    ],
    ids=["utf-8", "bom", "utf-16-le", "utf-16-be", "crlf"],
)
def test_c11_encodings_and_line_ends_make_no_difference(document, data):
    assert document(decode_text(data, file="f.yaml")) == document("a: ü\nb: 1\n")


def test_bytes_that_are_no_text_are_refused_with_their_place():
    with pytest.raises(InputError) as caught:
        decode_text(b"a: 1\nb: \xff\n", file="f.yaml")
    assert caught.value.problems[0].place == Place("f.yaml", 2, 4)


def test_bytes_over_the_bound_are_refused():
    with pytest.raises(InputError, match="CONFIG_TOO_LARGE"):
        decode_text(b" " * (MAX_BYTES + 1), file="f.yaml")


_PIECES = st.sampled_from(
    [
        *"abc:-?,[]{}#&*!|>'\"%@`~\n\t \\<",
        "\r\n",
        "\x85",
        "\u2028",
        "\x00",
        "\ud800",
        "<<: ",
        "&a ",
        "*a",
        "- ",
        ": ",
        "!!int ",
        "!!set ",
        "! ",
        "---\n",
        "...\n",
        '"\\U00110000"',
        '"\\x',
        "%YAML 9999.",
        "%TAG ! ",
        "!<",
        "1e5",
        ".nan",
    ]
)
_DOCUMENTS = st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=25).map("".join))


@given(_DOCUMENTS)
@example("%YAML " + "1" * 5000 + ".1\n---\na")
@example('"\\UFFFFFFFF"')
@example("!<%ff> a")
@example("a: >9999999999999\n b")
def test_no_text_makes_the_reader_raise_anything_but_input_error(text):
    lines = _LINE_BREAK.split(text)
    try:
        load_document(text, file="f.yaml")
    except InputError as e:
        for problem in e.problems:
            place = problem.place
            assert place is not None
            assert 1 <= (place.line or 0) <= len(lines)
            assert 1 <= (place.column or 0) <= len(lines[place.line - 1]) + 1


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdef<", max_size=5), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(_VALUES)
def test_json_is_read_as_json(value):
    text = json.dumps(value, ensure_ascii=True)
    assert load_document(text, file="f.json").value == json.loads(text)


@given(_VALUES)
def test_each_value_has_a_place_inside_the_text(value):
    text = json.dumps(value, indent=1)
    read = load_document(text, file="f.json")
    lines = text.split("\n")

    def check(item, path):
        place = read.place(path)
        assert 1 <= place.column <= len(lines[place.line - 1])
        members = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        for key, member in members:
            check(member, (*path, key))

    check(read.value, ())
