"""Where objects come from that plugins' notification sources are told of: the `objects` of a HostConfig. Pure."""

from hotbay.config.host_fields import FilePath, Section

__all__ = ["Objects"]


class Objects(Section):
    """Objects for all sources of packages that ask for some: YAML files in a folder. Without one there are none."""

    directory: FilePath | None = None
