"""`ID@REV` and `ID@DIGEST`."""

from contextlib import nullcontext, suppress

import pytest
from hotbay.cli.operate import read_choice
from hotbay.packages.manifest import REV_MAX
from hypothesis import given
from hypothesis import strategies as st

_IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", fullmatch=True)


@given(_IDS, st.integers(0, REV_MAX))
def test_revision(plugin, rev):
    assert read_choice(f"{plugin}@{rev}") == (plugin, rev, None)


@given(_IDS, st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True))
def test_digest(plugin, digest):
    assert read_choice(f"{plugin}@{digest}") == (plugin, None, digest)


@given(_IDS, st.from_regex(r"sha256:[0-9a-f]{12,63}", fullmatch=True))
def test_beginning_of_a_digest(plugin, digest):
    assert read_choice(f"{plugin}@{digest}") == (plugin, None, digest)


@pytest.mark.parametrize(("digits", "taken"), [(11, False), (12, True), (64, True), (65, False)])
def test_digest_has_12_to_64_digits(digits, taken):
    text = f"p@sha256:{'a' * digits}"
    with nullcontext() if taken else pytest.raises(ValueError, match="12 to 64 hex digits"):
        read_choice(text)


@pytest.mark.parametrize(
    "text", ["", "p", "p@", "@1", "p@-1", "p@+1", "p@1.0", "p@²", "p@" + "0" * 21, "p@sha256:ab", "a b@1"]
)
def test_neither(text):
    with pytest.raises(ValueError, match="expected ID@REV"):
        read_choice(text)


def test_revision_has_the_range_of_a_manifest_and_the_refusal_names_it():
    assert read_choice(f"p@{2**63}") == ("p", 2**63, None)
    assert read_choice(f"p@{REV_MAX}") == ("p", REV_MAX, None)
    for rev in (REV_MAX + 1, 10**40):
        with pytest.raises(ValueError, match=f"expected ID@REV with REV from 0 to {REV_MAX}"):
            read_choice(f"p@{rev}")


def test_id_is_bounded_on_both_sides():
    assert read_choice("p" * 128 + "@1")
    with pytest.raises(ValueError, match="expected"):
        read_choice("p" * 129 + "@1")


@given(st.text(max_size=40))
def test_any_text_is_one_or_refused(text):
    with suppress(ValueError):
        plugin, rev, digest = read_choice(text)
        assert plugin
        assert (rev is None) != (digest is None)
