"""Which addresses a text stands for, and which are the host's own."""

import pytest
from hotbay.datalayer.discovery.places import addresses_in, listens_on, plain_address
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("host", "address", "is_own"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
        ("127.0.0.1", "64:ff9b::7f00:1", True),
        ("127.0.0.1", "2002:7f00:1::", True),
        ("127.0.0.1", "::127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "LOCALHOST.", True),
        ("127.0.0.1", "x.localhost", True),
        ("127.0.0.1", "ip6-loopback", True),
        ("127.0.0.1", "localhost.example", False),
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.1", "10.0.0.1", False),
        ("127.0.0.2", "127.0.0.2", True),
        ("127.0.0.2", "127.0.0.1", False),
        ("127.0.0.2", "localhost", False),
        ("::1", "::1", True),
        ("::1", "localhost", True),
        ("localhost", "::1", True),
        ("localhost", "127.0.0.1", True),
        ("gateway.example", "Gateway.Example.", True),
        ("gateway.example", "other.example", False),
        ("gateway.example", "127.0.0.1", True),
        ("0.0.0.0", "127.0.0.2", True),
        ("0.0.0.0", "localhost", True),
        ("0.0.0.0", "10.0.0.1", False),
        ("::", "::ffff:127.0.0.1", True),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "64:ff9b::a00:5", True),
        ("10.0.0.5", "127.0.0.1", False),
        ("10.0.0.5", "localhost", False),
        ("10.0.0.5", "0.0.0.0", False),
    ],
)
def test_what_leads_to_the_host_at_its_port_is_its_own_and_at_another_port_nothing_is(
    host: str, address: str, is_own: bool
) -> None:
    own = listens_on(host, 8080)
    assert own(address, 8080) is is_own
    assert not own(address, 8081)


def test_a_port_that_is_not_known_is_nobodys() -> None:
    assert not listens_on("127.0.0.1", 0)("127.0.0.1", 0)


@pytest.mark.parametrize("form", ["64:ff9b::{}", "::{}", "::ffff:0:{}"])
@given(number=st.integers(1 << 16, (1 << 32) - 1))
def test_ipv4_in_an_address_of_a_translator_is_found(form: str, number: int) -> None:
    (inner,) = addresses_in(plain_address(str(plain_address(".".join(str(number >> n & 255) for n in (24, 16, 8, 0))))))  # type: ignore[arg-type]  # an address
    outer = plain_address(form.format(inner))
    assert outer is not None
    assert addresses_in(outer) == (outer, inner)


@pytest.mark.parametrize("text", ["10.0.0.1", "::", "::1", "fd00::1", "2001:db8::1"])
def test_other_addresses_stand_for_themselves_alone(text: str) -> None:
    address = plain_address(text)
    assert address is not None
    assert addresses_in(address) == (address,)
