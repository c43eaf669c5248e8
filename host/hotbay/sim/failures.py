"""Errors of a simulated server, in the form in which vLLM gives them, and those that are injected. Pure."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

import orjson

__all__ = ["FAILURE_TYPES", "Fault", "bad_request", "injected", "not_found", "unknown_model"]


class Fault(NamedTuple):
    """An answer that is an error. `type`, `param` and `code` are what machines read."""

    status: int
    message: str
    type: str
    param: str | None = None
    code: int | str = 0

    def body(self) -> bytes:
        """The JSON of it; `code` is the status unless it is something else."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code or self.status}
        return orjson.dumps({"error": error})


def bad_request(message: str, param: str | None = None) -> Fault:
    """The request cannot be answered as it is."""
    return Fault(400, message, "BadRequestError", param)


def unknown_model(name: str) -> Fault:
    """No model and no adapter has this name."""
    return Fault(404, f"The model `{name}` does not exist.", "NotFoundError", "model")


def not_found(path: str) -> Fault:
    """There is no such route."""
    return Fault(404, f"Not Found: {path}", "NotFoundError")


# The errors that llm-d-inference-sim injects, by its names for them.
_INJECTED: Final[Mapping[str, Callable[[str], Fault]]] = {
    "rate_limit": lambda model: Fault(
        429, f"Rate limit reached for {model}. Please try again later.", "RateLimitError", None, "rate_limit_exceeded"
    ),
    "invalid_api_key": lambda model: Fault(
        401, "Incorrect API key provided.", "AuthenticationError", None, "invalid_api_key"
    ),
    "context_length": lambda model: Fault(
        400,
        "This model's maximum context length was exceeded.",
        "BadRequestError",
        "messages",
        "context_length_exceeded",
    ),
    "server_error": lambda model: Fault(
        503, "The server is overloaded or not ready yet.", "InternalServerError", None, "server_error"
    ),
    "invalid_request": lambda model: Fault(400, "Invalid request.", "BadRequestError", None, "invalid_request_error"),
    "model_not_found": lambda model: Fault(
        404, f"The model `{model}-nonexistent` does not exist.", "NotFoundError", "model", "model_not_found"
    ),
}

FAILURE_TYPES: Final = tuple(_INJECTED)


def injected(model: str, rate: float, types: Sequence[str], random: Random) -> Fault | None:
    """The failure that this request gets, drawn; None for most. `rate` is a percentage."""
    if not rate or random.random() * 100 >= rate:
        return None
    return _INJECTED[random.choice(types or FAILURE_TYPES)](model)
