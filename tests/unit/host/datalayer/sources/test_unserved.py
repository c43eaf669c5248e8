"""What is listed and never asked, and attributes that are read and that nobody makes."""

import pytest
from hotbay.datalayer.sources.unserved import unasked, unmade
from hotbay_sdk.protocol import DataDeclaration, TypeDeclaration


def told(declared: TypeDeclaration | None) -> list[str]:
    return [f"{one.message}: {one.hint}" for one in unasked({"mine": "t"}, lambda _ref: declared)]


@pytest.mark.parametrize(
    ("points", "data", "said"),
    [
        (("extract",), DataDeclaration("metrics"), "'mine' stands behind no source: name it under `extractors`"),
        # What is told as events has no default source.
        (("extract",), DataDeclaration("endpoint", default_source="x"), "'mine' stands behind no source"),
        (("watch",), DataDeclaration("object:a/v1/K"), "'mine' is a source that is not asked: name it in dataLayer."),
        (("poll",), DataDeclaration("json"), "'mine' is a source that is not asked"),
        (("discover",), DataDeclaration(), "'mine' is a discovery that is not asked: name it in dataLayer.discovery"),
    ],
)
def test_what_stands_in_the_data_layer_only_and_does_not_is_told(
    points: tuple[str, ...], data: DataDeclaration, said: str
) -> None:
    [found] = told(TypeDeclaration("t", points, data=data))
    assert found.startswith(said)


@pytest.mark.parametrize(
    "declared",
    [
        None,
        TypeDeclaration("t", ("score",)),
        TypeDeclaration("t", ("score", "extract"), data=DataDeclaration("metrics")),
        TypeDeclaration("t", ("extract",), data=DataDeclaration("metrics", default_source="metrics-data-source")),
    ],
)
def test_what_is_not_known_or_asked_otherwise_is_not_told(declared: TypeDeclaration | None) -> None:
    assert told(declared) == []


def test_an_attribute_that_nobody_makes_is_told_with_its_reader() -> None:
    reads = [("cool", ("endpoint.waiting", "attribute.gpu_tmp", "attribute.made"))]
    [found] = unmade(reads, {"gpu_temp", "made"})
    assert found.message == "'cool' reads attribute.gpu_tmp, which nobody makes"
    assert found.hint == "did you mean attribute.gpu_temp?"
    [alone] = unmade(reads, {"made"})
    assert alone.hint.startswith("add the extractor")
