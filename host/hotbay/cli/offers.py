"""What the sources near a configuration offer now: packages in folders of this machine, and the types that they provide."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import anyio

from hotbay.config.source_config import BUNDLED, Source
from hotbay.config.type_facts import TypeFacts
from hotbay.errors import PackageError, Place, Problem
from hotbay.packages.bundled import Part, bundled_folder
from hotbay.packages.sources.folder import DirectorySource
from hotbay.packages.sources.oci_layout import OciLayoutSource
from hotbay.packages.sources.source import Offer
from hotbay.scheduling.registry import TypeIndex

__all__ = ["NEAR", "bundled_index", "folder_of_source", "index_of", "look_at_sources"]

NEAR: Final = (BUNDLED, "directory", "oci_layout")
"""Kinds of sources that are folders of this machine."""


def look_at_sources(sources: Iterable[Source]) -> tuple[list[Offer], list[Problem]]:
    """What the folders that are there offer now, and what in them is of no use."""
    return anyio.run(_look, tuple(sources))


def bundled_index() -> TypeIndex:
    """The types of the host and of the packages that come with it, of which a checkout may have built none."""
    offers, _ = look_at_sources([Source(name=BUNDLED)])
    return index_of(offers, {})


def index_of(offers: Sequence[Offer], ranking: dict[str, str]) -> TypeIndex:
    """The types that the offers provide, with what their manifests say of them; of several revs the newest counts."""
    manifests = sorted((offer.manifest for offer in offers), key=lambda it: (it.rev, it.digest))
    facts: dict[tuple[str, str], TypeFacts] = {
        (it.id, name): it.facts_of(name) for it in manifests for name in it.type_facts
    }
    data = [(it.id, name) for it in manifests for name in it.data_types]
    return TypeIndex.build(((it.id, it.types) for it in manifests), ranking, data=data, facts=facts)


def folder_of_source(source: Source) -> Path | None:
    """Where on this machine the source's packages lie, if they do."""
    if source.place_kind not in NEAR:
        return None
    return source.directory or source.oci_layout or bundled_folder(Part.PACKAGES)


async def _look(sources: Sequence[Source]) -> tuple[list[Offer], list[Problem]]:
    offers: list[Offer] = []
    problems: list[Problem] = []
    for source in sources:
        folder = folder_of_source(source)
        if source.fetch == "off" or folder is None or not folder.is_dir():
            continue
        kind = OciLayoutSource if source.place_kind == "oci_layout" else DirectorySource
        opened = kind(folder, source.name, dev=source.dev)
        try:
            scan = await opened.scan()
        except PackageError as error:
            problems.append(Problem(error.code, error.message, Place(str(folder)), hint=error.hint))
            continue
        finally:
            await opened.close()
        offers += scan.offers
        problems += scan.problems
    return offers, problems
