"""Which addresses are accepted, where redirects may lead, and what a registry's reference says."""

import pytest
from hotbay.packages.sources.addresses import (
    RegistryReference,
    base_url,
    is_registry_reference,
    origin_of,
    parse_reference,
    redirect_target,
    shown,
)
from hotbay.store.digests import digest_of
from hypothesis import given
from hypothesis import strategies as st

DIGEST = digest_of(b"image")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://example.org/packages", "https://example.org/packages/"),
        ("https://example.org/packages/", "https://example.org/packages/"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/"),
        ("https://[::1]:8443/a/b", "https://[::1]:8443/a/b/"),
    ],
)
def test_a_folder_s_address_ends_with_a_slash(text: str, url: str) -> None:
    assert base_url(text) == url


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("ftp://example.org/", "http:// or https://"),
        ("example.org/packages", "http:// or https://"),
        ("https:///packages", "name a host"),
        ("https://user:word@example.org/", "user or password"),
        ("https://example.org/?key=1", "query"),
        ("https://example.org/?", "query"),
        ("https://example.org/#part", "fragment"),
        ("https://example.org:http/", "address"),
        ("https://exa\nmple.org/", "address"),
    ],
)
def test_an_address_that_cannot_be_used_names_the_rule(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        base_url(text)


@pytest.mark.parametrize(
    ("url", "is_fit"),
    [
        ("https://example.org/", True),
        ("http://example.org/", False),
        ("http://localhost:5000/", True),
        ("http://127.3.2.1/", True),
        ("http://[::1]/", True),
        ("http://128.0.0.1/", False),
        ("http://localhost.example.org/", False),
    ],
)
def test_secrets_travel_where_nobody_reads_along(url: str, is_fit: bool) -> None:
    assert origin_of(url).may_see_secrets is is_fit


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("https://a.example/x", "/y"),
        ("https://a.example/x", "https://b.example/y"),
        ("http://a.example/x", "https://a.example/x"),
        ("http://a.example/x", "http://b.example/y"),
        ("http://localhost/x", "http://127.0.0.1:99/y"),
    ],
)
def test_a_redirect_may_keep_or_strengthen_the_transport(here: str, there: str) -> None:
    assert redirect_target(here, there).endswith(there)


@pytest.mark.parametrize(
    ("here", "there", "rule"),
    [
        ("https://a.example/x", "http://a.example/x", "is not https"),
        ("https://a.example/x", "ftp://a.example/x", "http:// or https://"),
        ("https://a.example/x", "file:///etc/passwd", "http:// or https://"),
        ("http://a.example/x", "http://localhost/x", "inside this machine"),
        ("https://a.example/x", "https://127.0.0.1/x", "inside this machine"),
        ("https://a.example/x", "https://a.example:b/", "address"),
        ("https://a.example/x", "https://user@a.example/", "user or password"),
    ],
)
def test_a_redirect_that_weakens_the_transport_is_not_followed(here: str, there: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        redirect_target(here, there)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("reg.example/a/b", RegistryReference("https://reg.example", "a/b")),
        ("reg.example:5000/a", RegistryReference("https://reg.example:5000", "a")),
        ("localhost:5000/a", RegistryReference("http://localhost:5000", "a")),
        ("127.0.0.1:5000/a/b__c-d.e:1.0", RegistryReference("http://127.0.0.1:5000", "a/b__c-d.e", "1.0")),
        ("[::1]:5000/a", RegistryReference("http://[::1]:5000", "a")),
        ("http://reg.example/a", RegistryReference("http://reg.example", "a")),
        ("https://localhost/a", RegistryReference("https://localhost", "a")),
        (f"reg.example/a@{DIGEST}", RegistryReference("https://reg.example", "a", None, DIGEST)),
        (f"reg.example/a:{'t' * 128}", RegistryReference("https://reg.example", "a", "t" * 128)),
    ],
)
def test_a_reference_names_registry_repository_and_what_in_it(text: str, reference: RegistryReference) -> None:
    assert parse_reference(text) == reference
    assert is_registry_reference(text)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("reg.example", "HOST/NAME"),
        ("/a", "HOST/NAME"),
        ("reg.example/", "HOST/NAME"),
        ("reg.example/A", "no repository"),
        ("reg.example/a//b", "no repository"),
        ("reg.example/../a", "no repository"),
        ("reg.example/" + "a" * 256, "no repository"),
        ("reg.example/a:", "no tag"),
        ("reg.example/a:-x", "no tag"),
        ("reg.example/a:" + "t" * 129, "no tag"),
        ("reg.example/a@sha256:12", "sha256"),
        (f"reg.example/a:1@{DIGEST}", "not both"),
        ("ftp://reg.example/a", "http:// or https://"),
        ("user:word@reg.example/a", "user or password"),
    ],
)
def test_a_reference_that_cannot_be_used_names_the_rule(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        parse_reference(text)


@pytest.mark.parametrize("text", ["out", "out/packages", "./reg.example/a", "../a/b", "/srv/a.b/c", ".hidden/b", ""])
def test_what_may_be_a_folder_is_no_registry(text: str) -> None:
    assert not is_registry_reference(text)


@given(st.text(max_size=80))
def test_any_text_is_a_reference_or_a_value_error(text: str) -> None:
    try:
        reference = parse_reference(text)
    except ValueError:
        return
    assert parse_reference(f"{reference.registry_url}/{str(reference).partition('/')[2]}") == reference


@given(st.text(max_size=80))
def test_any_redirect_leads_to_a_web_server_or_is_a_value_error(location: str) -> None:
    try:
        target = redirect_target("https://a.example/x", location)
    except ValueError:
        return
    assert origin_of(target).scheme == "https"


def test_a_query_is_not_shown() -> None:
    assert shown("https://a.example/x?signature=secret") == "https://a.example/x"
