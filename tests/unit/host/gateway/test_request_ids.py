"""Which ids of clients are taken."""

import pytest
from hotbay.gateway.request_ids import request_ids


def test_sane_id_is_kept():
    choose = request_ids("p")
    assert choose(b"req-1.a_B:/+=@") == "req-1.a_B:/+=@"
    assert choose(b"x" * 128) == "x" * 128


@pytest.mark.parametrize("given", [None, b"", b"x" * 129, b"a b", b"a\tb", b'"', b"\xc3\xa4", b"a\x1b[0m", b"a\n"])
def test_other_ids_are_replaced_by_new_ones(given):
    choose = request_ids("p")
    assert [choose(given), choose(given)] == ["p-1", "p-2"]
