"""What is known of responses and what somebody wants to know of them, as values. Pure."""

from typing import Final, NamedTuple

__all__ = ["NO_WANTS", "ResponseFacts", "ResponseWants", "Usage"]


class ResponseWants(NamedTuple):
    """What somebody wants to know of responses. `headers`: names in lower case, None where nobody is told of them.

    `chunks`: of bodies more than the end; `usage`: what a server counted, which has to be read out of the body; `fields`: what
    goes with what is told of bodies, of the request.
    """

    headers: frozenset[str] | None
    body: bool
    chunks: bool
    usage: bool
    fields: frozenset[str] = frozenset()


NO_WANTS: Final = ResponseWants(None, False, False, False)


class Usage(NamedTuple):
    """Tokens as the model server counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class ResponseFacts(NamedTuple):
    """What is known of a response's body at some moment; numbers are of all of it until then.

    `cause` is that of the end: natural, client-disconnect, evicted, error; None before. Times are microseconds since the
    request was sent.
    """

    status: int = 0
    bytes: int = 0
    chunks: int = 0
    usage: Usage | None = None
    end: bool = False
    cause: str | None = None
    first_byte: bool = False
    ttft_us: int | None = None
    elapsed_us: int = 0
