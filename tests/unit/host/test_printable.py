"""Texts with other people's words in them."""

import json

import pytest
from hotbay.errors import printable


@pytest.mark.parametrize("text", ["plain", "two\nlines", "schön 東京"])
def test_what_prints_stays(text: str) -> None:
    assert printable(text) == text


def test_what_acts_on_a_terminal_or_is_no_unicode_is_escaped() -> None:
    shown = printable("\x1b[2J\x9b\x07\u202e\udcff")
    assert shown == "\\x1b[2J\\x9b\\x07\\u202e\\udcff"
    assert json.dumps(shown).encode()
