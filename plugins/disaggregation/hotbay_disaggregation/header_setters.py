"""The headers that tell the decoding server which servers compute the prompt and the embeddings.

Both are set or taken away with every request: what a client sends under these names never reaches a server.
"""

from collections.abc import Sequence
from typing import Final

from hotbay_sdk import Context, Edits, Endpoints, PickedTargets, PreRequest, Request

from hotbay_disaggregation.addresses import READ, addresses_of
from hotbay_disaggregation.package import plugin
from hotbay_disaggregation.parameters import HeaderParameters

PREFILL_HEADER: Final = "x-prefiller-host-port"
ENCODE_HEADER: Final = "x-encoder-hosts-ports"
STAGE_HEADERS: Final = (PREFILL_HEADER, ENCODE_HEADER)


def stage_headers(picked: PickedTargets, endpoints: Endpoints, prefill: str, encode: str) -> Edits:
    """`host:port` of the first prefill endpoint and of all encode endpoints, None for a stage that did not run."""
    prefillers = addresses_of(endpoints, _targets(picked, prefill)[:1])
    encoders = addresses_of(endpoints, _targets(picked, encode))
    return Edits(
        request={
            PREFILL_HEADER: prefillers[0] if prefillers else None,
            ENCODE_HEADER: ",".join(encoders) if encoders else None,
        }
    )


def _targets(picked: PickedTargets, profile: str) -> Sequence[str]:
    return picked.results.get(profile) or ()


@plugin.type("disagg-headers-handler", reads=[READ], parameters=HeaderParameters)
class DisaggHeadersHandler(PreRequest):
    """Sets both headers, for handlers that do not. Deprecated: disagg-profile-handler sets them itself."""

    def __init__(self, context: Context, parameters: HeaderParameters) -> None:
        self.sets_request_headers = STAGE_HEADERS
        self._parameters = parameters
        context.logger.warning("%s is deprecated: disagg-profile-handler sets the headers itself", context.type)

    def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> Edits:
        """Both headers."""
        return stage_headers(picked, endpoints, self._parameters.prefillProfile, self._parameters.encodeProfile)


@plugin.type("prefill-header-handler", reads=[READ], parameters=HeaderParameters)
class PrefillHeaderHandler(DisaggHeadersHandler):
    """The older name of disagg-headers-handler."""
