"""Files that commands are given: how they are read, and what they are."""

from pathlib import Path
from typing import Final

from hotbay.config.document_stream import split_documents
from hotbay.config.documents import Document, load_document
from hotbay.config.host_config import API_VERSION as HOST_VERSION
from hotbay.config.host_config import KIND as HOST_KIND
from hotbay.config.picker_config import API_VERSION as PICKER_VERSION
from hotbay.config.picker_config import DEPRECATED_API_VERSION
from hotbay.config.picker_config import KIND as PICKER_KIND
from hotbay.config.reload import read_content
from hotbay.config.wording import described, nearest
from hotbay.errors import InputError, Problem
from hotbay.models.documents import KINDS

__all__ = ["ENDPOINTS", "MODELS", "folder_of", "has_models", "kind_of", "read_text"]

ENDPOINTS: Final = "endpoint file"
MODELS: Final = "file of models"
_PICKER_VERSIONS: Final = (PICKER_VERSION, DEPRECATED_API_VERSION)


def read_text(path: Path) -> str:
    """The file's text. Raises `InputError`."""
    return read_content(path).text(hint="check its name")


def has_models(text: str, *, file: str) -> bool:
    """Whether the first of the text's documents is of a kind that is about models: only those may be many in one file."""
    try:
        value = load_document(next(iter(split_documents(text)), ""), file=file).value
    except InputError:
        return False
    return isinstance(value, dict) and value.get("kind") in KINDS


def folder_of(path: Path) -> Path:
    """What paths in a file are relative to: the folder in which it is named.

    Links are not followed. Where files are links into the folder of a version, as in a ConfigMap's volume, that one goes when
    the next one comes.
    """
    return path.absolute().parent


def kind_of(document: Document) -> str:
    """What the document is, or is meant to be; the reader of that kind then reports a kind that is mistyped."""
    value = document.value if isinstance(document.value, dict) else {}
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind is None:
        if version == HOST_VERSION:
            return HOST_KIND
        return ENDPOINTS if "endpoints" in value else PICKER_KIND
    guess = nearest(kind, (HOST_KIND, PICKER_KIND)) if isinstance(kind, str) else None
    if guess is None and version == HOST_VERSION:
        guess = HOST_KIND
    if guess is None and version not in _PICKER_VERSIONS:
        expected = f"{HOST_KIND} or {PICKER_KIND}"
        place = document.place(("kind",))
        raise InputError(
            [
                Problem(
                    "CONFIG_INVALID", "not a kind of file that hotbay reads", place, "kind", expected, described(kind)
                )
            ]
        )
    return guess or PICKER_KIND
