"""The operator's lock file: which digest of every plugin runs, for each platform, and nothing else. Pure.

apiVersion: hotbay/v1alpha1
kind: Lock
packages:
- {id: standard, platform: python-cp311-linux-x86_64, digest: "sha256:…", rev: 7, signer: ""}
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hotbay.config.documents import Document, load_document
from hotbay.errors import InputError, Problem
from hotbay.store.digests import Digest
from hotbay.store.world.engine import Change, Delete, Put, WorldView
from hotbay.store.world.records import Completion, Locked, ManifestRef

__all__ = ["lock_changes", "locked_now", "read_lock", "write_lock"]

API_VERSION: Final = "hotbay/v1alpha1"
KIND: Final = "Lock"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_TEXTS: Final = ("id", "platform", "digest", "signer")
_REV_LIMIT: Final = 2**64

KnownRef = Callable[[Digest], ManifestRef | None]


def _unknown(_digest: Digest) -> ManifestRef | None:
    return None


def read_lock(text: str, *, file: str, known: KnownRef = _unknown) -> tuple[Locked, ...]:
    """The lines of a lock file, each (plugin, platform) once. Raises `InputError` with what is wrong with it.

    `known` is what the world has under a digest, None where it is new: a digest alone decides what runs, and what a person
    reads beside it has to be that build.
    """
    document = load_document(text, file=file)
    value = document.value
    if not isinstance(value, dict) or value.get("apiVersion") != API_VERSION or value.get("kind") != KIND:
        raise InputError([_problem(document, (), f"expected apiVersion {API_VERSION} and kind {KIND}")])
    packages = value.get("packages")
    unknown = sorted(set(value) - {"apiVersion", "kind", "packages"})
    if not isinstance(packages, list) or unknown:
        told = f"unknown field {unknown[0]}" if unknown else "packages is a list"
        raise InputError([_problem(document, (unknown[0],) if unknown else (), told)])
    lines = [_as_known(document, index, _line(document, index, entry), known) for index, entry in enumerate(packages)]
    problems = [line for line in lines if isinstance(line, Problem)]
    locked = [line for line in lines if isinstance(line, Locked)]
    keys = [line.key for line in locked]
    problems += [
        _problem(document, ("packages", index), f"{key} stands there twice")
        for index, key in enumerate(keys)
        if key in keys[:index] and not problems
    ]
    if problems:
        raise InputError(problems)
    return tuple(locked)


def _line(document: Document, index: int, entry: object) -> Locked | Problem:
    path = ("packages", index)
    if not isinstance(entry, dict) or set(entry) - {*_TEXTS, "rev"}:
        return _problem(document, path, f"expected {', '.join(_TEXTS)} and rev, and nothing else")
    texts = {name: entry.get(name, "") for name in _TEXTS}
    rev = entry.get("rev")
    if not all(isinstance(text, str) for text in texts.values()) or type(rev) is not int or not 0 <= rev < _REV_LIMIT:
        return _problem(document, path, "id, platform, digest and signer are texts, rev is a number from 0 up")
    if not texts["id"] or not texts["platform"] or not _DIGEST.fullmatch(texts["digest"]):
        return _problem(document, path, "expected an id, a platform, and a digest as sha256:<64 hex digits>")
    return Locked(texts["id"], texts["platform"], Digest(texts["digest"]), rev, texts["signer"])


def _as_known(document: Document, index: int, line: Locked | Problem, known: KnownRef) -> Locked | Problem:
    ref = known(line.digest) if isinstance(line, Locked) else None
    if isinstance(line, Problem) or ref is None:
        return line
    is_other = (line.plugin_id, line.platform) != (ref.plugin_id, ref.platform)
    if not is_other and line.rev == ref.rev:
        return line
    found = f"rev {line.rev} of {line.plugin_id} for {line.platform}" if is_other else f"rev {line.rev}"
    message = f"this digest is rev {ref.rev} of {ref.plugin_id} for {ref.platform}, not {found}"
    hint = "write revision and digest of one build, as `hotbay pack` and `hotbay publish` print them"
    return Problem("CONFIG_INVALID", message, document.place(("packages", index)), hint=hint)


def _problem(document: Document, path: tuple[str | int, ...], message: str) -> Problem:
    hint = "`hotbay lock --out FILE` writes such a file"
    return Problem("CONFIG_INVALID", message, document.place(path), hint=hint)


def write_lock(lines: Iterable[Locked]) -> Mapping[str, object]:
    """The document that says these lines."""
    packages = [
        {
            "id": line.plugin_id,
            "platform": line.platform,
            "digest": str(line.digest),
            "rev": line.rev,
            "signer": line.signer,
        }
        for line in sorted(lines, key=lambda line: line.key)
    ]
    return {"apiVersion": API_VERSION, "kind": KIND, "packages": packages}


def locked_now(view: WorldView, digests: Iterable[str]) -> tuple[Locked, ...]:
    """What is complete of these digests, as lines of a lock."""
    refs = {ref.digest: ref for ref in view.all(ManifestRef)}
    return tuple(
        Locked(refs[found].plugin_id, refs[found].platform, found, refs[found].rev, "")
        for found in map(Digest, digests)
        if found in refs and view.get(Completion, found) is not None
    )


def lock_changes(view: WorldView, lines: Iterable[Locked]) -> list[Change]:
    """What makes exactly these lines the lock in force."""
    wanted = {line.key: line for line in lines}
    changes: list[Change] = [Delete(Locked.kind, line.key) for line in view.all(Locked) if line.key not in wanted]
    changes += [Put(line) for line in wanted.values() if view.get(Locked, line.key) != line]
    return changes
