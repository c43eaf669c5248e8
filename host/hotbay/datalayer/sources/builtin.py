"""Makes the sources and extractors that the host has itself, from what the configuration says of them.

Blocks on the disk for the files of TLS: call it in a thread.
"""

from dataclasses import replace
from pathlib import Path

from hotbay.config.data_parameters import MetricsSource, ObjectDirectory
from hotbay.config.data_uses import ExtractorUse, SourceUse
from hotbay.config.engine_parameters import EngineParameters
from hotbay.datalayer.fetching.tls import ClientTls, absolute
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.source import AnyExtractor, DataSource
from hotbay.datalayer.sources import dcgm, models
from hotbay.datalayer.sources.core import CoreMetricsExtractor
from hotbay.datalayer.sources.dcgm import DcgmExtractor
from hotbay.datalayer.sources.http import Where
from hotbay.datalayer.sources.lifecycle import EndpointNotificationSource
from hotbay.datalayer.sources.models import ModelsExtractor, ModelsSource
from hotbay.datalayer.sources.objects import ObjectDirectorySource

__all__ = ["make_extractor", "make_source", "settled"]


class DcgmSource(MetricsPoller):
    """`dcgm-data-source`: a page as that of a model server, from the exporter beside it, or on its node where that is known."""

    type = "dcgm-data-source"


def settled(use: SourceUse, *, directory: Path, interval_s: float) -> SourceUse:
    """The use with all that a source is made of: with absolute paths, and the interval of metrics where none is written.

    Two uses that are the same then are one source.
    """
    written = use.parameters
    if isinstance(written, ObjectDirectory):
        return replace(use, parameters=replace(written, path=str((directory / written.path).absolute())))
    if not isinstance(written, MetricsSource):
        return use
    defaults = {ModelsSource.type: models.INTERVAL_S, DcgmSource.type: dcgm.INTERVAL_S}
    every_s = written.interval_s or defaults.get(use.type, interval_s)
    return replace(use, parameters=replace(written, interval_s=every_s, tls=absolute(written.tls, directory)))


def make_source(use: SourceUse, *, directory: Path, interval_s: float) -> DataSource | None:
    """Make a source; None for a type that is not the host's.

    Args:
        use: a valid one.
        directory: what relative paths are relative to.
        interval_s: of metrics when none is written.

    Raises:
        InputError: a file that it needs cannot be used.
    """
    if isinstance(use.parameters, ObjectDirectory):
        return ObjectDirectorySource(use.name, directory / use.parameters.path, use.parameters.kind)
    if use.type == EndpointNotificationSource.type:
        return EndpointNotificationSource(use.name)
    if not isinstance(use.parameters, MetricsSource):
        return None
    written = use.parameters
    tls = ClientTls(written.tls, directory) if written.scheme == "https" else None
    if use.type == ModelsSource.type:
        where = Where(written.path, written.port, tls)
        return ModelsSource(use.name, where, interval_s=written.interval_s or models.INTERVAL_S)
    is_dcgm = use.type == DcgmSource.type
    make, default_s = (DcgmSource, dcgm.INTERVAL_S) if is_dcgm else (MetricsPoller, interval_s)
    return make(
        path=written.path,
        port=written.port,
        tls=tls,
        tls_files=None if tls is None else absolute(written.tls, directory),
        interval_s=written.interval_s or default_s,
        at_node=is_dcgm,
        name=use.name,
    )


def make_extractor(use: ExtractorUse) -> AnyExtractor | None:
    """Make an extractor from a valid use; None for a type that is not the host's."""
    if isinstance(use.parameters, EngineParameters):
        return CoreMetricsExtractor(use.name, use.parameters)
    if use.type == ModelsExtractor.type:
        return ModelsExtractor(use.name)
    return DcgmExtractor(use.name) if use.type == DcgmExtractor.type else None
