"""What an object says of itself: its kind and its name, as an object of a cluster does. Pure."""

from collections.abc import Mapping

from hotbay.config.data_types import ObjectKind
from hotbay.config.documents import Document
from hotbay.config.forms import Form
from hotbay.config.wording import Value
from hotbay.errors import Problem

__all__ = ["api_version", "key_of", "read_key"]


def api_version(kind: ObjectKind) -> str:
    """What stands in `apiVersion` of an object of this kind."""
    return f"{kind.group}/{kind.version}" if kind.group else kind.version


def key_of(form: Form, value: Mapping[str, Value]) -> str | None:
    """`namespace/name`, or `name` of an object without namespace; None for one without a name, which is reported."""
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        form.expected(("metadata",), "a mapping with a name", metadata)
        return None
    name = form.name(metadata.get("name"), ("metadata", "name"))
    if metadata.get("namespace") is None:
        return name
    namespace = form.name(metadata["namespace"], ("metadata", "namespace"))
    return f"{namespace}/{name}" if name and namespace else None


def read_key(value: Mapping[str, Value], kind: ObjectKind, *, name: str) -> tuple[str, tuple[Problem, ...]]:
    """The key of what is to be an object of this kind, and what is wrong with it; the key is empty where there is none.

    `name` is what problems call the document.
    """
    form = Form(Document.of(dict(value), name=name))
    for field, wanted in (("apiVersion", api_version(kind)), ("kind", kind.kind)):
        if value.get(field) != wanted:
            form.expected((field,), f"{wanted}, as the type's payload says", value.get(field))
    key = key_of(form, value)
    return key or "", tuple(form.problems)
