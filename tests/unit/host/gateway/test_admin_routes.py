"""Which calls the admin socket takes, with which arguments."""

from contextlib import suppress

import orjson
import pytest
from hotbay.errors import InputError
from hotbay.gateway.admin import AdminLimits
from hotbay.gateway.admin_routes import ACTIONS, ROUTES, read_call
from hotbay.packages.manifest import REV_MAX
from hypothesis import given
from hypothesis import strategies as st


def body(**arguments):
    return orjson.dumps(arguments)


@pytest.mark.parametrize(
    ("method", "target", "name"),
    [
        (b"GET", b"/status", "status"),
        (b"GET", b"/status/stream?interval_ms=100", "status_stream"),
        (b"GET", b"/history/standard", "history"),
        (b"GET", b"/logs/a-b?lines=3&follow=true", "logs"),
        (b"GET", b"/quarantine", "quarantine"),
        (b"POST", b"/apply", "apply"),
        (b"POST", b"/gc", "gc"),
    ],
)
def test_call_is_read(method, target, name):
    route, _ = read_call(method, target, b"")
    assert route.name == name


def test_arguments_come_from_path_query_and_body():
    _, logs = read_call(b"GET", b"/logs/standard?lines=3&follow=1", b"")
    assert (logs.text("plugin"), logs.optional_count("lines"), logs.flag("follow")) == ("standard", 3, True)
    _, pin = read_call(b"POST", b"/pin", body(plugin="p", rev=0))
    assert (pin.text("plugin"), pin.optional_count("rev"), pin.optional_text("digest")) == ("p", 0, None)
    _, grant = read_call(b"POST", b"/grant", body(plugin="p", capabilities=["net", "dns"]))
    assert grant.texts("capabilities") == ("net", "dns")
    _, disable = read_call(b"POST", b"/disable", body(plugin="p"))
    assert disable.flag("force") is False
    assert str(disable) == "plugin=p"


@pytest.mark.parametrize(
    ("method", "target", "sent", "code"),
    [
        (b"GET", b"/", b"", "NOT_FOUND"),
        (b"GET", b"/history", b"", "NOT_FOUND"),
        (b"GET", b"/history/", b"", "NOT_FOUND"),
        (b"GET", b"/history/a%2fb", b"", "NOT_FOUND"),
        (b"GET", b"/history/a/b", b"", "NOT_FOUND"),
        (b"GET", b"/apply", b"", "METHOD_NOT_ALLOWED"),
        (b"POST", b"/status", b"", "METHOD_NOT_ALLOWED"),
        (b"GET", b"/status?x=1", b"", "CONFIG_INVALID"),
        (b"GET", b"/status?x", b"", "CONFIG_INVALID"),
        (b"GET", b"/logs/p?lines=-1", b"", "CONFIG_INVALID"),
        (b"GET", b"/logs/p?follow=yes", b"", "CONFIG_INVALID"),
        (b"POST", b"/gc", b"{", "CONFIG_INVALID"),
        (b"POST", b"/gc", b"[]", "CONFIG_INVALID"),
        (b"POST", b"/gc", body(dry_ran=True), "CONFIG_INVALID"),
        (b"POST", b"/gc", body(dry_run=1), "CONFIG_INVALID"),
        (b"POST", b"/unpin", b"", "CONFIG_INVALID"),
        (b"POST", b"/unpin", body(plugin=""), "CONFIG_INVALID"),
        (b"POST", b"/unpin", body(plugin="a\nb"), "CONFIG_INVALID"),
        (b"POST", b"/pin", body(plugin="p", rev=True), "CONFIG_INVALID"),
        (b"POST", b"/pin", body(plugin="p", rev=-1), "CONFIG_INVALID"),
        (b"POST", b"/rollout", body(plugin="p", action="stop"), "CONFIG_INVALID"),
        (b"POST", b"/grant", body(plugin="p", capabilities=[]), "CONFIG_INVALID"),
        (b"POST", b"/grant", body(plugin="p", capabilities="net"), "CONFIG_INVALID"),
        (b"POST", b"/grant", body(plugin="p", capabilities=[1]), "CONFIG_INVALID"),
    ],
)
def test_call_is_refused(method, target, sent, code):
    with pytest.raises(InputError) as caught:
        read_call(method, target, sent)
    assert caught.value.code == code


def test_pin_takes_every_revision_that_a_manifest_can_have_and_no_other():
    _, pin = read_call(b"POST", b"/pin", b'{"plugin": "p", "rev": %d}' % REV_MAX)
    assert pin.optional_count("rev") == REV_MAX
    for rev in (REV_MAX + 1, 10**30):
        with pytest.raises(InputError, match=f"a whole number from 0 to {REV_MAX}"):
            read_call(b"POST", b"/pin", b'{"plugin": "p", "rev": %d}' % rev)


def test_every_wrong_argument_is_told_at_once():
    with pytest.raises(InputError) as caught:
        read_call(b"POST", b"/rollout", body(action="stop", plugins="p"))
    assert [problem.path for problem in caught.value.problems] == ["plugins", "plugin", "action"]
    assert "pause or resume or promote or abort or approve" in str(caught.value.problems[2])


@pytest.mark.parametrize(
    ("argument", "fits", "too_much"),
    [
        ("interval_ms", (100, 60_000), (99, 60_001)),
        ("lines", (0, 10_000), (-1, 10_001)),
    ],
)
def test_counts_are_bounded_on_both_sides(argument, fits, too_much):
    path = b"/status/stream" if argument == "interval_ms" else b"/logs/p"
    for value in fits:
        _, arguments = read_call(b"GET", b"%b?%b=%d" % (path, argument.encode(), value), b"")
        assert arguments.optional_count(argument) == value
    for value in too_much:
        with pytest.raises(InputError):
            read_call(b"GET", b"%b?%b=%d" % (path, argument.encode(), value), b"")


def test_texts_are_bounded_on_both_sides():
    for plugin, capabilities in (("p" * 256, ["c"]), ("p", ["c"] * 64)):
        read_call(b"POST", b"/grant", body(plugin=plugin, capabilities=capabilities))
    for plugin, capabilities in (("p" * 257, ["c"]), ("p", ["c"] * 65)):
        with pytest.raises(InputError):
            read_call(b"POST", b"/grant", body(plugin=plugin, capabilities=capabilities))


def test_names_of_routes_are_unique_and_actions_are_those_of_the_table():
    assert len({route.name for route in ROUTES}) == len({(r.method, r.path) for r in ROUTES}) == len(ROUTES)
    for action in ACTIONS:
        _, arguments = read_call(b"POST", b"/rollout", body(plugin="p", action=action))
        assert arguments.text("action") == action


@given(
    st.sampled_from([b"GET", b"POST", b"PUT"]), st.sampled_from(ROUTES), st.binary(max_size=60), st.binary(max_size=60)
)
def test_whatever_comes_is_read_or_refused(method, route, query, sent):
    for target in (query, route.path.encode() + b"?" + query, route.path.replace("{plugin}", "p").encode() + query):
        with suppress(InputError):
            read_call(method, target, sent)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
)


@given(
    st.sampled_from([route for route in ROUTES if route.method == "POST"]),
    st.dictionaries(st.sampled_from(["plugin", "rev", "digest", "force", "capabilities", "target", "x"]), _VALUES),
)
def test_arguments_have_the_types_of_the_table(route, given_arguments):
    try:
        sent = orjson.dumps(given_arguments)
        _, arguments = read_call(b"POST", route.path.encode(), sent)
    except (InputError, orjson.JSONEncodeError):
        return
    for argument in route.arguments:
        if argument.required:
            read = arguments.texts if argument.kind == "texts" else arguments.text
            assert read(argument.name)


@pytest.mark.parametrize(("count", "refused"), [(64, False), (65, False), (4_000, False), (4_001, True)])
def test_a_thousand_endpoints_fit_into_one_command(count: int, *, refused: bool) -> None:
    body = orjson.dumps({"ids": ["i" * 256] * count})
    if not refused:
        _, arguments = read_call(b"POST", b"/endpoints/cordon", body)
        assert len(arguments.texts("ids")) == count
        assert len(body) <= AdminLimits().body_bytes
        assert str(arguments).endswith(f" and {count - 5} more")
        assert len(str(arguments)) < 1500
        return
    with pytest.raises(InputError) as caught:
        read_call(b"POST", b"/endpoints/cordon", body)
    (problem,) = caught.value.problems
    assert (problem.expected, problem.found) == ("1 to 4000 texts of 1 to 256 printable characters", "4001 texts")


def test_text_that_is_none_is_named_among_those_that_are() -> None:
    with pytest.raises(InputError) as caught:
        read_call(b"POST", b"/endpoints/cordon", orjson.dumps({"ids": ["a", 7, "b"]}))
    assert caught.value.problems[0].found == "7"


@pytest.mark.parametrize(
    ("target", "name", "argument", "value"),
    [
        (b"/explain/abc-1", "explain", "id", "abc-1"),
        (b"/explain/a%2Fb%2B%3D%40", "explain", "id", "a/b+=@"),
        (b"/debug/plugins/state/my%20queue", "dump_ref", "ref", "my queue"),
        (b"/debug/plugins/state/%C3%A9", "dump_ref", "ref", "é"),
    ],
)
def test_ids_and_refs_stand_percent_encoded_at_the_end_of_a_path(target, name, argument, value):
    route, arguments = read_call(b"GET", target, b"")
    assert (route.name, arguments.text(argument)) == (name, value)


@pytest.mark.parametrize("end", [b"", b"%", b"%FF", b"a%0Ab", b"x" * 257, b"a/b"])
def test_what_is_no_text_is_at_no_path(end):
    if end == b"%":
        assert read_call(b"GET", b"/explain/" + end, b"")[1].text("id") == "%"
        return
    with pytest.raises(InputError) as caught:
        read_call(b"GET", b"/explain/" + end, b"")
    assert caught.value.code == "NOT_FOUND"


@pytest.mark.parametrize(("last", "is_taken"), [(0, False), (1, True), (100, True), (101, False)])
def test_newest_decisions_are_one_to_a_hundred(last, is_taken):
    target = b"/explain?last=%d" % last
    if is_taken:
        assert read_call(b"GET", target, b"")[1].optional_count("last") == last
    else:
        with pytest.raises(InputError):
            read_call(b"GET", target, b"")
