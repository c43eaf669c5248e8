"""Reads a PackageRef: a small document that stands for a package which lies elsewhere. Blocks.

    apiVersion: hotbay/v1alpha1
    kind: PackageRef
    id: my-scorer
    layout: ../packages/my-scorer       # or url: https://…  ·  or registry: host/name:tag
    digest: sha256:…                    # optional: this one and no other

A layout's path counts from the document's folder. What the digest names is the manifest.
"""

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from hotbay.config.documents import MAX_BYTES, decode_text, load_document
from hotbay.errors import InputError, Problem
from hotbay.packages.manifest import Manifest, check_label
from hotbay.store.digests import DIGEST_PATTERN, Digest
from hotbay.store.files import open_regular

_ADDRESS_LIMIT_CHARACTERS: Final = 4096

__all__ = ["PackageReference", "read_reference"]

_Address = Annotated[str, Field(min_length=1, max_length=_ADDRESS_LIMIT_CHARACTERS)]


class PackageReference(BaseModel):
    """One package elsewhere: exactly one of `layout`, `url` and `registry` is given."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    api_version: Annotated[Literal["hotbay/v1alpha1"], Field(alias="apiVersion")]
    kind: Literal["PackageRef"]
    id: Annotated[str, AfterValidator(check_label)]
    layout: _Address | None = None
    url: _Address | None = None
    registry: _Address | None = None
    digest: Annotated[Digest, Field(pattern=DIGEST_PATTERN)] | None = None

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if sum(address is not None for address in (self.layout, self.url, self.registry)) != 1:
            raise ValueError("give exactly one of layout, url and registry")
        return self

    def admits(self, manifest: Manifest) -> bool:
        """Whether the manifest is one that is meant."""
        return manifest.id == self.id and self.digest in (None, manifest.digest)


def read_reference(path: Path) -> PackageReference:
    """Read the document. Raises `InputError` naming file, line and rule, `PackageError` when it cannot be read."""
    with open_regular(path) as opened:
        content = opened.read(MAX_BYTES + 1)
    document = load_document(decode_text(content, file=str(path)), file=str(path))
    try:
        return PackageReference.model_validate({} if document.value is None else document.value)
    except ValidationError as error:
        raise InputError(
            [
                Problem(
                    "CONFIG_INVALID",
                    item["msg"].removeprefix("Value error, "),
                    document.place(item["loc"]),
                    ".".join(str(step) for step in item["loc"]),
                    hint="Write apiVersion, kind: PackageRef, id, and one of layout, url or registry.",
                )
                for item in error.errors(include_url=False, include_input=False, include_context=False)
            ]
        ) from error
