"""The manifest: one identity for one content, and rules that are named when they are broken."""

import json
from pathlib import Path
from typing import Any

import pytest
from hotbay.config.type_facts import UNKNOWN, TypeFacts
from hotbay.errors import PackageError
from hotbay.packages.manifest import (
    MANIFEST_LIMIT_BYTES,
    Blob,
    Channel,
    Manifest,
    ProtocolRange,
    check_label,
    check_version,
    host_platform,
    parse_channel,
    parse_manifest,
)
from hotbay.store.digests import digest_of
from hypothesis import given
from hypothesis import strategies as st

DIGEST = "sha256:" + "0" * 64
VALID: dict[str, Any] = {
    "blobs": [
        {
            "digest": DIGEST,
            "media_type": "application/vnd.hotbay.wheel.v1+zip",
            "name": "sample-1.0-py3-none-any.whl",
            "size": 1,
        }
    ],
    "capabilities": [],
    "channel": "dev",
    "description": "",
    "entrypoint": "sample:plugin",
    "id": "sample",
    "license": "",
    "platform": "python-cp311-linux-x86_64",
    "protocol": {"first": 1, "last": 1},
    "publisher": "tests",
    "rev": 1,
    "types": ["sample-scorer"],
    "version": "1.0.0",
}


def canonical(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_canonical_bytes_survive_parsing() -> None:
    manifest = parse_manifest(canonical(VALID))
    assert manifest.canonical_bytes() == canonical(VALID)
    assert manifest.digest == digest_of(canonical(VALID))
    assert manifest.size_bytes == 1


@pytest.mark.parametrize("text", ["valid-id", "v", "123", "a" * 63])
def test_hb04_label_accepted(text: str) -> None:
    assert check_label(text) == text


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "empty"),
        ("trailing-", "begin or end with a dash"),
        ("-leading", "begin or end with a dash"),
        ("under_score", "'_'"),
        ("Upper", "'U'"),
        ("a.b", "'.'"),
        ("a" * 64, "at most 63 characters, has 64"),
        ("ä", "'ä'"),
        ("a\n", "found"),
    ],
)
def test_hb04_label_refused_naming_the_rule(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule.replace(".", r"\.")):
        check_label(text)


@pytest.mark.parametrize(
    ("text", "channel"),
    [("development", Channel.DEV), (" deV ", Channel.DEV), ("", Channel.DEV), (" pRoDuCtioN ", Channel.RELEASE)],
)
def test_hb05_channel_spellings(text: str, channel: Channel) -> None:
    assert parse_channel(text) is channel


def test_hb05_unknown_channel_is_refused() -> None:
    with pytest.raises(ValueError, match='"release" or "dev"'):
        parse_channel(" fubar ")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"id": "Bad_Id"}, "id: may hold"),
        ({"publisher": ""}, "publisher: must not be empty"),
        ({"rev": -1}, "rev"),
        ({"rev": 2**64}, "rev"),
        ({"rev": "1"}, "rev"),
        ({"rev": 1.0}, "rev"),
        ({"rev": True}, "rev"),
        ({"version": "1.0"}, "version: must be MAJOR"),
        ({"platform": "Python cp311"}, "platform"),
        ({"entrypoint": "sample"}, "entrypoint: must be"),
        ({"entrypoint": "sample:plugin; import os"}, "entrypoint"),
        ({"types": []}, "types"),
        ({"types": ["a", "a"]}, "types: names something twice"),
        ({"types": ["Bad type"]}, "types.0"),
        ({"protocol": {"first": 0, "last": 1}}, "protocol.first"),
        ({"channel": "fubar"}, "channel"),
        ({"blobs": []}, "blobs"),
        ({"blobs": VALID["blobs"] * 2}, "names something twice"),
        ({"surprise": 1}, "surprise"),
        ({"description": "x" * 4097}, "description"),
    ],
)
def test_broken_rule_is_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(PackageError) as caught:
        parse_manifest(canonical(VALID | change), origin="here")
    assert caught.value.code == "INVALID_PACKAGE"
    assert f"here: {named}" in caught.value.message or named in caught.value.message
    assert "hotbay pack" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "../sample-1.0-py3-none-any.whl"}, "name"),
        ({"name": "sub/sample-1.0-py3-none-any.whl"}, "name"),
        ({"name": "sample.tar.gz"}, "name: must be the name of a wheel"),
        ({"digest": "sha256:../../etc"}, "digest"),
        ({"digest": DIGEST.upper()}, "digest"),
        ({"digest": DIGEST + "\n"}, "digest"),
        ({"size": 0}, "size"),
        ({"media_type": "text/plain"}, "media_type"),
    ],
)
def test_broken_blob_is_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(PackageError) as caught:
        parse_manifest(canonical(VALID | {"blobs": [VALID["blobs"][0] | change]}))
    assert f"blobs.0.{named}" in caught.value.message


@pytest.mark.parametrize("missing", sorted(set(VALID) - {"capabilities", "channel", "description", "license"}))
def test_missing_field_is_named(missing: str) -> None:
    with pytest.raises(PackageError, match=f"{missing}: Field required"):
        parse_manifest(canonical({key: value for key, value in VALID.items() if key != missing}))


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(VALID).encode(),
        canonical(VALID).replace(b'"rev":1', b'"rev":1,"rev":1'),
        canonical(VALID).replace(b'"sample"', b'"s\\u0061mple"'),
        canonical(VALID) + b"\n",
        canonical({key: value for key, value in VALID.items() if key != "license"}),
    ],
)
def test_other_bytes_for_the_same_content_are_refused(content: bytes) -> None:
    with pytest.raises(PackageError, match="canonical form"):
        parse_manifest(content)


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"id":"\\ud800"}'])
def test_garbage_is_refused(content: bytes) -> None:
    with pytest.raises(PackageError, match="INVALID_PACKAGE"):
        parse_manifest(content)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(content: bytes) -> None:
    with pytest.raises(PackageError):
        parse_manifest(content)


def test_size_is_bounded_before_parsing() -> None:
    with pytest.raises(PackageError, match="more than 1048576 bytes"):
        parse_manifest(b" " * (MANIFEST_LIMIT_BYTES + 1))
    with pytest.raises(PackageError, match="document"):
        parse_manifest(b" " * MANIFEST_LIMIT_BYTES)


@pytest.mark.parametrize(
    ("text", "good"), [("1.2.3", True), ("1.2.3-rc.1+b", True), ("01.2.3", False), ("1.2", False), ("1.2.3\n", False)]
)
def test_version_is_semver(text: str, good: bool) -> None:
    if good:
        assert check_version(text) == text
    else:
        with pytest.raises(ValueError, match="SemVer"):
            check_version(text)


@given(
    st.integers(0, 2**64 - 1),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    st.sampled_from(Channel),
)
def test_every_manifest_survives_its_own_bytes(rev: int, description: str, channel: Channel) -> None:
    manifest = Manifest(
        id="a",
        publisher="b",
        rev=rev,
        version="1.0.0",
        platform=host_platform(),
        entrypoint="a.b:c.d",
        types=("t",),
        protocol=ProtocolRange(first=1, last=2),
        blobs=(Blob(name="a-1-py3-none-any.whl", digest=digest_of(b""), size=1),),
        description=description,
        channel=channel,
    )
    assert parse_manifest(manifest.canonical_bytes()) == manifest


def test_host_platform_has_the_documented_form() -> None:
    assert host_platform().startswith("python-cp3")
    assert Path(host_platform()).name == host_platform()


@pytest.mark.parametrize("name", ["../x", "a/b", "A", " a", "\u0430dmin", "a" * 300, "", "a@b", "a\0b", "-a"])
@pytest.mark.parametrize("field", ["id", "publisher", "types"])
def test_p16_hostile_name_is_refused_before_it_reaches_a_path_or_a_command(field: str, name: str) -> None:
    document = VALID | {field: [name] if field == "types" else name}
    with pytest.raises(PackageError) as caught:
        parse_manifest(canonical(document))
    assert caught.value.code == "INVALID_PACKAGE"
    assert field in caught.value.message


def test_p16_plain_name_is_accepted() -> None:
    assert parse_manifest(canonical(VALID | {"id": "a-1"})).id == "a-1"


def test_capability_of_another_hosts_time_is_read_and_merely_never_granted() -> None:
    assert parse_manifest(canonical({**VALID, "capabilities": ["teleport"]})).capabilities == ("teleport",)


def test_field_that_came_later_leaves_older_packages_their_digest() -> None:
    # VALID is what the first hosts wrote: the bytes, and so the digest, are as they were.
    assert "one_shot" not in VALID
    old = parse_manifest(canonical(VALID))
    assert (old.one_shot, old.canonical_bytes()) == (False, canonical(VALID))
    new = parse_manifest(canonical(VALID | {"one_shot": True}))
    assert new.one_shot
    assert new.canonical_bytes() == canonical(VALID | {"one_shot": True})
    assert new.digest != old.digest


@pytest.mark.parametrize("written", [False, 0, "true", None])
def test_field_that_came_later_is_written_in_one_way_only(written: object) -> None:
    with pytest.raises(PackageError):
        parse_manifest(canonical(VALID | {"one_shot": written}))


def test_data_types_are_left_out_where_there_are_none_and_are_types() -> None:
    plain = parse_manifest(canonical(VALID))
    assert plain.data_types == ()
    assert b"data_types" not in plain.canonical_bytes()
    marked = parse_manifest(canonical(VALID | {"data_types": VALID["types"]}))
    assert marked.data_types == marked.types
    assert marked.digest != plain.digest
    with pytest.raises(PackageError, match="data_types names other"):
        parse_manifest(canonical(VALID | {"data_types": ["other"]}))


FACTS = {"points": ["score"], "produces_default": ["Key"], "refs": ["a.*.b"], "stability": "beta"}


def test_facts_of_types_are_part_of_the_identity_and_absent_ones_are_not_written() -> None:
    plain = parse_manifest(canonical(VALID))
    said = parse_manifest(canonical(VALID | {"type_facts": {"sample-scorer": FACTS}}))
    assert said.digest != plain.digest
    assert said.facts_of("sample-scorer") == TypeFacts(frozenset({"score"}), "beta", ("a.*.b",), ("Key",))
    assert plain.facts_of("sample-scorer") == UNKNOWN
    assert b"type_facts" not in plain.canonical_bytes()
    assert {plain, said, parse_manifest(plain.canonical_bytes())} == {plain, said}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"other-scorer": FACTS}, "type_facts names other-scorer, which types does not"),
        ({"sample-scorer": FACTS | {"points": ["Score"]}}, "must be the word of an extension point"),
        ({"sample-scorer": FACTS | {"refs": [".a"]}}, "must be keys joined by dots"),
        ({"sample-scorer": FACTS | {"produces_default": ["a b"]}}, "must be the key of shared data"),
        ({"sample-scorer": FACTS | {"stability": "gold"}}, "type_facts.sample-scorer.stability"),
        ({"sample-scorer": FACTS | {"points": ["score", "score"]}}, "names something twice"),
        ({"sample-scorer": {"points": ["score"]}}, "is not in canonical form"),
    ],
    ids=["foreign", "point", "path", "key", "stability", "twice", "partial"],
)
def test_facts_that_break_a_rule_are_named(facts: dict[str, object], expected: str) -> None:
    with pytest.raises(PackageError, match=expected):
        parse_manifest(canonical(VALID | {"type_facts": facts}))
