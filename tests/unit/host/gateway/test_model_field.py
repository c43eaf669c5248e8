"""A model's name is replaced in a body, and not another byte."""

import orjson
import pytest
from hotbay.gateway.parsers.model_field import MAX_TOKENS, replace_model
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("body", "after"),
    [
        (b'{"model":"a"}', b'{"model":"new"}'),
        (b'\n{ "x" : 1e400, "model"\t:\r\n "a" , "n":12345678901234567890.10 }', b'\n{ "x" : 1e400, "model"\t:\r\n "new" , "n":12345678901234567890.10 }'),
        (b'{"a":{"model":"x"},"b":["model","y"],"model":"a"}', b'{"a":{"model":"x"},"b":["model","y"],"model":"new"}'),
        (b'{"a":"\\"model\\":\\"x\\"","model":"a"}', b'{"a":"\\"model\\":\\"x\\"","model":"new"}'),
        (b'{"a":"model","model":"a"}', b'{"a":"model","model":"new"}'),
        (b'{"model":"a\\"b\\\\","model":"c"}', b'{"model":"new","model":"new"}'),
        (b'{"mod\\u0065l":"a"}', b'{"mod\\u0065l":"new"}'),
        (b'{"model":{"model":"a"},"model":"b"}', b'{"model":{"model":"a"},"model":"new"}'),
        (b'{"model":"a","z":"\\u0041","\\u006dodel":"b"}', b'{"model":"new","z":"\\u0041","\\u006dodel":"new"}'),
    ],
)  # fmt: skip
def test_only_the_name_changes(body, after):
    assert replace_model(body, "new") == after


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"models":"a"}', b'["model","a"]', b'{"model":5}', b'{"\\q":"a"}', b'"model":"a"', b'{"model":'],
)
def test_body_without_a_name_has_none(body):
    assert replace_model(body, "new") is None


@pytest.mark.parametrize("name", ['q"\\', "ü\u2028", "\U0001f600"])
def test_new_name_is_written_as_json(name):
    assert orjson.loads(replace_model(b'{"model":"a"}', name)) == {"model": name}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6) | st.just("model"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "a", '"']), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), values, max_size=4), st.text(max_size=8), st.text(max_size=8))
def test_everything_else_says_what_it_said(payload, old, new):
    body = orjson.dumps({**payload, "model": old})
    assert orjson.loads(replace_model(body, new)) == {**payload, "model": new}


@given(st.binary(max_size=60))
def test_what_is_no_json_raises_nothing(body):
    replace_model(body, "new")


@pytest.mark.parametrize("kind", [b'""', b"[]", b'"\\n"'], ids=["texts", "lists", "escapes"])
def test_name_is_looked_for_only_so_far(kind):
    def body(tokens):
        # Beside the list's items: the object, the list with its key, and the key of the name.
        items = (tokens - 5) // (2 if kind == b"[]" else 1)
        return b'{"x":[%b],"model":"a"}' % b",".join([kind] * items)

    assert replace_model(body(MAX_TOKENS), "new").endswith(b'],"model":"new"}')
    assert replace_model(body(MAX_TOKENS + 2), "new") is None


def test_name_that_may_stand_again_too_far_on_is_not_replaced_in_one_place_alone():
    body = b'{"model":"a","x":[%b],"model":"a"}' % b",".join([b'""'] * MAX_TOKENS)
    assert replace_model(body, "new") is None
    other = body.removesuffix(b',"model":"a"}') + b"}"
    assert replace_model(other, "new") == other.replace(b'"a"', b'"new"'), "what follows the last one is not walked"
