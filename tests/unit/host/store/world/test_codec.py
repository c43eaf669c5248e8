"""Records survive being written down; what was not written here is refused."""

import dataclasses
import json
import typing

import pytest
from hotbay.store.digests import digest_of
from hotbay.store.world.codec import RECORD_KINDS, decode, encode
from hotbay.store.world.records import Completion, Floor, ManifestRef, Pin, Record
from hypothesis import given
from hypothesis import strategies as st

DIGESTS = st.binary(max_size=4).map(digest_of)
TEXTS = st.text(st.characters(), max_size=8)
VALUES: dict[object, st.SearchStrategy[object]] = {
    str: TEXTS,
    int: st.integers(0, 2**64 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    bytes: st.binary(max_size=20),
}


def values(hint: object) -> st.SearchStrategy[object]:
    options = typing.get_args(hint)
    if hint in VALUES:
        return VALUES[hint]
    if getattr(hint, "__name__", "") == "Digest":
        return DIGESTS
    if typing.get_origin(hint) is tuple:
        if options[-1] is Ellipsis:
            return st.lists(values(options[0]), max_size=3).map(tuple)
        return st.tuples(*(values(option) for option in options))
    return st.none() | values(next(option for option in options if option is not type(None)))


def records(record_type: type[Record]) -> st.SearchStrategy[Record]:
    hints = typing.get_type_hints(record_type)
    return st.builds(
        record_type, **{field.name: values(hints[field.name]) for field in dataclasses.fields(record_type)}
    )


@given(st.one_of([records(record_type) for record_type in RECORD_KINDS.values()]))
def test_any_record_is_read_back_as_it_was(record: Record) -> None:
    content = encode(record)
    assert decode(record.kind, content) == record
    assert content.isascii()


def test_every_kind_is_known() -> None:
    assert set(RECORD_KINDS.values()) == set(typing.get_args(Record))
    assert all(name == record_type.kind for name, record_type in RECORD_KINDS.items())


def test_lone_surrogates_of_a_file_name_are_kept() -> None:
    ref = ManifestRef("a", 1, "any", digest_of(b"m"), "s", "caf\udce9", b"m")
    assert decode("ref", encode(ref)) == ref


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_number_that_is_none_is_not_written(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        encode(Pin("a", 1, None, "me", number))


GOOD = json.loads(
    encode(Completion(digest_of(b"m"), "a", 1, ((digest_of(b"w"), 3),), "environment", "tree", 1.0)).decode()
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rev": "1"}, "completion.rev: '1' has the wrong type"),
        ({"rev": True}, "completion.rev: 'True' has the wrong type"),
        ({"rev": 1.0}, "wrong type"),
        ({"rev": None}, "wrong type"),
        ({"at_s": "1"}, "wrong type"),
        ({"at_s": False}, "wrong type"),
        ({"tree": 1}, "completion.tree is no text"),
        ({"digest": "sha256:short"}, "expected sha256"),
        ({"blobs": {}}, "completion.blobs is no list"),
        ({"blobs": [["sha256:" + "0" * 64]]}, "an entry has 1 parts"),
        ({"blobs": ["sha256:" + "0" * 64]}, "is no list"),
        ({"extra": 1}, "has the fields digest, plugin_id"),
    ],
    ids=repr,
)
def test_damaged_record_is_refused_naming_the_field(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode("completion", json.dumps(GOOD | change).encode())


def test_missing_field_other_kind_and_other_forms_are_refused() -> None:
    with pytest.raises(ValueError, match="has the fields"):
        decode("completion", json.dumps({k: v for k, v in GOOD.items() if k != "tree"}).encode())
    with pytest.raises(ValueError, match="unknown kind of record 'complete'"):
        decode("complete", b"{}")
    with pytest.raises(ValueError, match="has the fields"):
        decode("floor", b"[]")
    with pytest.raises(ValueError, match="Expecting value"):
        decode("floor", b"")


@pytest.mark.parametrize("text", ["%", "QQ=", "QQ==QQ==", "é"])
def test_bytes_that_are_no_base64_are_refused(text: str) -> None:
    content = json.loads(encode(ManifestRef("a", 1, "any", digest_of(b"m"), "s", "l", b"m")))
    with pytest.raises(ValueError, match=r"ref\.manifest is no base64"):
        decode("ref", json.dumps(content | {"manifest": text}).encode())


def test_whole_number_of_seconds_is_read_as_a_time() -> None:
    content = json.loads(encode(Pin("a", 1, None, "me", 5.0)))
    assert decode("pin", json.dumps(content | {"at_s": 5}).encode()) == Pin("a", 1, None, "me", 5.0)


def test_form_is_stable() -> None:
    """What earlier hosts wrote is read by later ones: another form is another schema of the file."""
    assert encode(Floor("a", 7)) == b'{"plugin_id":"a","rev":7}'
    pin = Pin("a", None, digest_of(b""), "me", 1.5)
    assert json.loads(encode(pin)) == {"at_s": 1.5, "digest": pin.digest, "plugin_id": "a", "rev": None, "who": "me"}
