"""The texts of a first project that decides about requests before any endpoint is chosen. `$name` is filled in by `scaffold`."""

from typing import Final

from hotbay.authoring.templates import ENDPOINTS, Body

__all__ = ["REQUEST_BODIES"]

_ADMITTER: Final = Body(
    code='''\
"""Denies long prompts while every queue is long."""

import math
from dataclasses import dataclass

from hotbay_sdk import Admitter, Context, Denial, Endpoints, ParameterError, Plugin, Request

plugin = Plugin("$id")


@dataclass(frozen=True)
class Parameters:
    """What an operator may set."""

    long_tokens: int = 1000
    long_queue: float = 16.0

    def __post_init__(self) -> None:
        if self.long_tokens < 1:
            raise ParameterError("long_tokens", "1 or more")


@plugin.type("$type", reads=["endpoint.waiting", "request.tokens_estimate"], parameters=Parameters)
class $cls(Admitter):
    """Short prompts are always admitted, and all of them while one queue is short or unknown."""

    def __init__(self, context: Context, parameters: Parameters) -> None:
        self._parameters = parameters

    def admit(self, request: Request, endpoints: Endpoints) -> Denial | None:
        """None admits the request. The first denial of all admitters counts."""
        if request.tokens_estimate < self._parameters.long_tokens:
            return None
        waiting = endpoints.column("endpoint.waiting")
        if any(math.isnan(length) or length < self._parameters.long_queue for length in waiting):
            return None
        return Denial("resource-exhausted", message="every queue is long: send it again later")
''',
    tests="""\

BUSY = {"default/a": {"waiting": 20}, "default/b": {"waiting": 30}}
FREE = {"default/a": {"waiting": 20}, "default/b": {"waiting": 1}}
REQUESTS = [{"tokens_estimate": 10}, {"tokens_estimate": 5000}]


def test_long_prompts_are_denied_while_every_queue_is_long() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type")
        short, long = harness.admit("mine", BUSY, REQUESTS)
        assert short is None
        assert long is not None
        assert long.code == "resource-exhausted"


def test_all_prompts_are_admitted_while_one_queue_is_short() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("mine", "$type")
        assert harness.admit("mine", FREE, REQUESTS) == [None, None]
""",
    does="Denies requests with long prompts while every queue is long.",
    reads="`endpoint.waiting` and `request.tokens_estimate`.",
    parameters=(
        "`long_tokens` (default 1000): a prompt of so many tokens is long. `long_queue` (default 16): so many requests that"
        " wait are a long queue."
    ),
    endpoints=ENDPOINTS,
    call="--endpoints endpoints.yaml",
)

REQUEST_BODIES: Final = {"admitter": _ADMITTER}
