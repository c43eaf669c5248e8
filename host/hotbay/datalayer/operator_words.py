"""What the operator said of endpoints by command, over what discovery says of them. Pure.

Invariant: a word stands whether its endpoint is there or not, until it is taken back.
"""

from dataclasses import dataclass, replace

from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState

__all__ = ["OperatorWords"]


@dataclass(frozen=True, slots=True)
class _Word:
    state: EndpointState | None
    weight: float | None


class OperatorWords:
    """The words by endpoint id."""

    def __init__(self) -> None:
        self._words: dict[str, _Word] = {}

    def say(self, endpoint_id: str, state: EndpointState | None, weight: float | None) -> None:
        """This holds of an endpoint from now on, None where discovery's word does."""
        if state is None and weight is None:
            self._words.pop(endpoint_id, None)
        else:
            self._words[endpoint_id] = _Word(state, weight)

    def over(self, discovered: EndpointMetadata) -> EndpointMetadata:
        """The endpoint with what was said of it; itself when nothing was."""
        word = self._words.get(discovered.id)
        if word is None:
            return discovered
        return replace(
            discovered,
            state=discovered.state if word.state is None else word.state,
            weight=discovered.weight if word.weight is None else word.weight,
        )
