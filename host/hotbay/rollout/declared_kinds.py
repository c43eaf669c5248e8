"""Whether the types of a READY process are what its manifest says of them. Pure.

A manifest that says nothing of its types is one of before it could: any types go with it.
"""

from collections.abc import Mapping

from hotbay_sdk.protocol import TypeDeclaration

from hotbay.config.data_types import Point
from hotbay.errors import PackageError
from hotbay.packages.manifest import Manifest

__all__ = ["check_data_types", "sees_no_request"]


def sees_no_request(declaration: TypeDeclaration) -> bool:
    """Whether all that the type answers is the data layer's."""
    return bool(declaration.points) and all(point in tuple(Point) for point in declaration.points)


def check_data_types(label: str, manifest: Manifest, declared: Mapping[str, TypeDeclaration]) -> None:
    """Raises `PackageError` INVALID_PACKAGE where the manifest says of a type what its process does not."""
    _check_points(label, manifest, declared)
    if not manifest.data_types:
        return
    found = sorted(name for name, declaration in declared.items() if sees_no_request(declaration))
    if found != sorted(manifest.data_types):
        raise PackageError(
            "INVALID_PACKAGE",
            f"{label}: of the data layer alone are its types {', '.join(found) or 'none'}, its manifest says "
            f"{', '.join(sorted(manifest.data_types))}",
            hint="make [tool.hotbay] data_types the types that are extractors, sources or discoveries only, and pack again",
        )


def _check_points(label: str, manifest: Manifest, declared: Mapping[str, TypeDeclaration]) -> None:
    for name, declaration in declared.items():
        said, found = manifest.facts_of(name).points, frozenset(declaration.points)
        if said and said != found:
            raise PackageError(
                "INVALID_PACKAGE",
                f"{label}: its type {name} answers {', '.join(sorted(found)) or 'nothing'}, its manifest says "
                f"{', '.join(sorted(said))}",
                hint=f"make `points` of [tool.hotbay.types.{name}] what the type's class answers, and pack again",
            )
