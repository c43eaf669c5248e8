"""What a host keeps of its decisions, and to whom it tells them: the `explain` of a HostConfig. Pure."""

from pydantic import Field

from hotbay.config.host_fields import Section, Size

__all__ = ["Explain"]


class Explain(Section):
    """The newest decisions, as many as fit into both bounds, for `hotbay explain`.

    `header`: whoever sends a request with `x-hotbay-explain: 1` is told in its answer, too: names of model servers and plugins.
    """

    header: bool = False
    keep: int = Field(default=1000, ge=0, le=100_000)
    max_bytes: Size = Field(default=16 << 20, alias="bytes", le=1 << 30)
