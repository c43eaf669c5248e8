"""Profile handlers that run in the host. Pure.

The single-profile handler needs no code: the only profile runs, once. The header-profile handler runs the one profile that a
header of the request names. The data-parallel handler runs the only profile; what it picks is one rank of a server, which is
reached at the server's primary port, with a header that names the rank's own.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.errors import Place, Problem
from hotbay.scheduling.decision import Rejected
from hotbay.scheduling.request import InferenceRequest

__all__ = ["DATA_PARALLEL_HEADER", "ChooseProfiles", "data_parallel_headers", "header_choice", "primary_port"]

DATA_PARALLEL_HEADER: Final = "x-data-parallel-host-port"
DEFAULT_HEADER: Final = "EPP-Profile"
DEFAULT_PROFILE: Final = "decode"
DEFAULT_PORT: Final = 8000

ChooseProfiles = Callable[[InferenceRequest, Set[str]], Sequence[str] | Rejected]
"""Which profiles a request runs next, given the names of those that ran; none ends the asking."""


def header_choice(
    parameters: Mapping[str, object], profiles: Sequence[str], name: str, place: Place | None
) -> ChooseProfiles | Problem:
    """`headerName` (`EPP-Profile`) names the profile, `defaultProfile` (`decode`) holds without the header.

    A request that by its header, or for want of one, runs none of `profiles` is the client's mistake: 400.
    """
    unknown = [given for given in parameters if given not in ("headerName", "defaultProfile")]
    if unknown:
        return _problem(name, f"unknown parameter '{unknown[0]}'", "it takes headerName and defaultProfile", place)
    header = parameters.get("headerName", DEFAULT_HEADER)
    default = parameters.get("defaultProfile", DEFAULT_PROFILE)
    if not isinstance(header, str) or not header or not isinstance(default, str):
        return _problem(name, "headerName and defaultProfile are names", "write them as text", place)
    lowered, known_profiles = header.lower(), frozenset(profiles)

    def choose(request: InferenceRequest, ran: Set[str]) -> Sequence[str] | Rejected:
        if ran:
            return ()
        wanted = request.headers.get(lowered, default)
        if wanted not in known_profiles:
            return Rejected(400, "unknown-profile", f"the header {header} has to name a scheduling profile")
        return (wanted,)

    return choose


def primary_port(parameters: Mapping[str, object], name: str, place: Place | None) -> int | Problem:
    """`primaryPort` (8000) of the data-parallel handler."""
    unknown = [given for given in parameters if given != "primaryPort"]
    if unknown:
        return _problem(name, f"unknown parameter '{unknown[0]}'", "it takes primaryPort", place)
    port = parameters.get("primaryPort", DEFAULT_PORT)
    if type(port) is not int or not 0 < port < 65536:
        return _problem(name, "primaryPort is a port", "write a whole number from 1 to 65535", place)
    return port


def data_parallel_headers(endpoint: EndpointMetadata) -> Mapping[str, str | None]:
    """What the primary port is told: which rank was picked."""
    return {DATA_PARALLEL_HEADER: endpoint.authority}


def _problem(name: str, message: str, hint: str, place: Place | None) -> Problem:
    return Problem("CONFIG_INVALID", f"plugins '{name}': {message}", place=place, hint=hint)
