"""Where what operators say of models stands: the `models` of a HostConfig. Pure."""

from typing import Annotated

from pydantic import Field

from hotbay.config.host_fields import FilePath, Section

__all__ = ["Models"]


class Models(Section):
    """Files, and folders of files, with InferenceObjective and InferenceModelRewrite documents. Without one there are none."""

    files: Annotated[tuple[FilePath, ...], Field(strict=False)] = ()
