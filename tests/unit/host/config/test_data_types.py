"""Payload words and what they say of a source."""

import pytest
from hotbay.config.data_types import BUILTIN_FORMS, ObjectKind, TypeForm, Variant, variant_of
from hypothesis import given
from hypothesis import strategies as st

WORDS = st.text(alphabet="abcZ09-./:v", max_size=12)


@pytest.mark.parametrize(
    ("payload", "variant"),
    [
        ("metrics", Variant.POLLING),
        ("models", Variant.POLLING),
        ("bytes", Variant.POLLING),
        ("endpoint", Variant.ENDPOINT),
        ("object:apps/v1/Deployment", Variant.NOTIFICATION),
        ("object:/v1/Pod", Variant.NOTIFICATION),
    ],
)
def test_a_payload_says_how_it_comes(payload, variant):
    assert variant_of(payload) is variant


@pytest.mark.parametrize(
    "payload", ["", "metric", "objects:/v1/Pod", "object:v1/Pod", "object:/v1/pod", "object:/1/Pod"]
)
def test_words_that_are_no_payload_are_refused(payload):
    with pytest.raises(ValueError, match="expected"):
        variant_of(payload)


def test_every_type_of_the_host_has_one_variant():
    assert {len(form.variants) for form in BUILTIN_FORMS.values()} == {1}


def test_a_form_has_the_variants_of_its_payloads():
    form = TypeForm(frozenset(), ("metrics", "models", "endpoint"))
    assert form.variants == {Variant.POLLING, Variant.ENDPOINT}


@given(WORDS, WORDS)
def test_a_kind_that_is_read_is_read_back_from_its_payload(api_version, kind):
    try:
        read = ObjectKind.parse(api_version, kind)
    except ValueError:
        return
    assert variant_of(read.payload) is Variant.NOTIFICATION
    assert ObjectKind(*read.payload.removeprefix("object:").split("/")) == read
