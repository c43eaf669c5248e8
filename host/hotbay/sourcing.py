"""Makes the sources of a HostConfig: the one place that knows every kind."""

from collections.abc import Sequence
from functools import partial

from hotbay.config.source_config import Source as SourceEntry
from hotbay.extend import Extensions, SourceRequest
from hotbay.packages.bundled import Part, absent, bundled_folder
from hotbay.packages.sources.credentials import Credentials
from hotbay.packages.sources.folder import DirectorySource
from hotbay.packages.sources.http import HttpSource
from hotbay.packages.sources.oci_layout import OciLayoutSource
from hotbay.packages.sources.registry import RegistrySource
from hotbay.packages.sources.source import Source

__all__ = ["make_sources"]


def make_sources(entries: Sequence[SourceEntry], extensions: Extensions) -> dict[str, Source]:
    """The sources by name, those that are off left out. Raises `InputError` for what only shows when one is made."""
    return {entry.name: _make(entry, extensions) for entry in entries if entry.fetch != "off"}


def _make(entry: SourceEntry, extensions: Extensions) -> Source:
    name, dev = entry.name, entry.dev
    auth = Credentials(entry.auth.username, entry.auth.password_file, entry.auth.token_file)
    if entry.directory is not None:
        return DirectorySource(entry.directory, name, dev=dev, elsewhere=partial(_elsewhere, entry))
    if entry.oci_layout is not None:
        return OciLayoutSource(entry.oci_layout, name, dev=dev)
    if entry.http is not None:
        return HttpSource(name, entry.http, dev=dev, auth=auth, ca_file=entry.ca_file, poll_s=entry.poll_s)
    if entry.registry is not None:
        return RegistrySource(name, entry.registry, dev=dev, auth=auth, ca_file=entry.ca_file, poll_s=entry.poll_s)
    if entry.extension is not None:
        request = SourceRequest(name, dev, entry.options, entry.poll_s)
        return extensions.make_source(entry.extension, request)
    return DirectorySource(bundled_folder(Part.PACKAGES), name, dev=dev, absent=absent(Part.PACKAGES))


def _elsewhere(entry: SourceEntry, kind: str, address: str) -> Source:
    """The source that a document in a folder names; it has no credentials, which a document could send anywhere."""
    if kind == "registry":
        return RegistrySource(entry.name, address, dev=entry.dev, poll_s=entry.poll_s)
    return HttpSource(entry.name, address, dev=entry.dev, poll_s=entry.poll_s)
