"""A manifest that says which of its types see no request is held to it; one that says nothing is not."""

import pytest
from hotbay.config.type_facts import TypeFacts
from hotbay.errors import PackageError
from hotbay.packages.manifest import Blob, Manifest, ProtocolRange, TypeFactsEntry
from hotbay.rollout.catalog import Catalog
from hotbay.rollout.declared_kinds import check_data_types, sees_no_request
from hotbay.store.digests import Digest
from hotbay.store.world.changes import apply_changes
from hotbay.store.world.engine import Put, WorldView
from hotbay.store.world.records import ManifestRef
from hotbay_sdk.protocol import DataDeclaration, TypeDeclaration

SCORER = TypeDeclaration("a", ("score",))
EXTRACTOR = TypeDeclaration("b", ("extract",), data=DataDeclaration("json", (), {"x": "f32"}))
BOTH = TypeDeclaration("c", ("extract", "score"), data=DataDeclaration("json", (), {"x": "f32"}))
DECLARED = {it.type: it for it in (SCORER, EXTRACTOR, BOTH)}


def manifest(*data_types: str) -> Manifest:
    return Manifest(
        id="p", publisher="hotbay", rev=1, version="1.0.0", platform="any", entrypoint="m:plugin", types=("a", "b", "c"),
        protocol=ProtocolRange(first=1, last=1), data_types=data_types,
        blobs=(Blob(name="m-1.0-py3-none-any.whl", digest=Digest(f"sha256:{'0' * 64}"), size=1),),
    )  # fmt: skip


def test_type_sees_no_request_that_answers_the_data_layer_alone() -> None:
    assert [sees_no_request(it) for it in (SCORER, EXTRACTOR, BOTH, TypeDeclaration("d", ()))] == [
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("said", [(), ("b",)])
def test_what_agrees_or_says_nothing_is_taken(said: tuple[str, ...]) -> None:
    check_data_types("p#1", manifest(*said), DECLARED)


@pytest.mark.parametrize("said", [("a",), ("b", "c"), ("a", "b")])
def test_what_differs_is_refused(said: tuple[str, ...]) -> None:
    with pytest.raises(PackageError, match="of the data layer alone are its types b") as caught:
        check_data_types("p#1", manifest(*said), DECLARED)
    assert caught.value.code == "INVALID_PACKAGE"


def test_index_knows_them_before_anything_runs() -> None:
    made = manifest("b")
    ref = ManifestRef(made.id, 1, "any", made.digest, "s", "", made.canonical_bytes(), offered=True)
    catalog = Catalog()
    catalog.read(apply_changes(WorldView(), [Put(ref)])[0])
    assert catalog.index({}).data == {("p", "b")}


def of_points(*points: str, rev: int = 1) -> Manifest:
    facts = {"a": TypeFactsEntry(points=points, stability="beta")}
    return manifest().model_copy(update={"type_facts": facts, "rev": rev})


def test_points_of_the_manifest_are_those_of_ready() -> None:
    check_data_types("p#1", of_points("score"), DECLARED)
    check_data_types("p#1", of_points(), DECLARED)
    with pytest.raises(PackageError, match="its type a answers score, its manifest says filter, score") as caught:
        check_data_types("p#1", of_points("score", "filter"), DECLARED)
    assert caught.value.code == "INVALID_PACKAGE"


def test_index_knows_what_the_newest_manifest_says_of_a_type() -> None:
    made = [of_points("filter", rev=1), of_points("score", rev=2)]
    refs = [ManifestRef(it.id, it.rev, "any", it.digest, "s", "", it.canonical_bytes(), offered=True) for it in made]
    catalog = Catalog()
    catalog.read(apply_changes(WorldView(), [Put(ref) for ref in reversed(refs)])[0])
    assert catalog.index({}).facts("a") == TypeFacts(frozenset({"score"}), "beta")
    assert catalog.index({}).facts("b") == TypeFacts()
    assert catalog.index({}).facts("other") is None
