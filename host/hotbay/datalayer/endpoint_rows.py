"""What plugins are told of an endpoint: one map, the same in every call. Pure."""

from hotbay_sdk.protocol import Value

from hotbay.datalayer.endpoint import EndpointMetadata

__all__ = ["wire_row"]


def wire_row(endpoint: EndpointMetadata) -> dict[str, Value]:
    """The map: `id`, `name`, `address`, `port`, `scheme`, `labels`, `state`, `weight`; a copy of its own."""
    labels: dict[str, Value] = dict(endpoint.labels)
    return {
        "id": endpoint.id,
        "name": endpoint.name,
        "address": endpoint.address,
        "port": endpoint.port,
        "scheme": endpoint.scheme,
        "labels": labels,
        "state": str(endpoint.state),
        "weight": endpoint.weight,
    }
