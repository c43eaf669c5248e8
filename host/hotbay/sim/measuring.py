"""Measures a real OpenAI-compatible server for `fitting`: what a prompt costs, and what a step costs as more are answered.

A prompt alone, one token of answer: the time to that token is a step with its prompt in it. Several answers at once: the time
between two tokens, while all of them are under way, is a step with so many sequences. Prompts never repeat, so no cache
helps. A prompt's time is the shortest of its repetitions, as neighbours on the machine only add to it; a step's is their
median, as a reader who was held up sees tokens closer together than they came. The sizes to fit by and the sizes to check
with are different ones.

A thread for each request and the standard library's client: the server's time is what is looked at, not ours.
"""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from itertools import count
from random import Random
from typing import Final, Self
from urllib.parse import urlsplit

from hotbay.errors import CapacityError, InputError, Problem
from hotbay.scheduling.prompts import BYTES_PER_TOKEN
from hotbay.sim.fitting import Measured

__all__ = ["Measurer", "Sizes"]

_TIMEOUT_S: Final = 120.0
_WORDS: Final = (
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heron",
    "inlet",
    "jetty",
    "knoll",
    "larch",
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What to measure: tokens of prompts, requests at a time, and what the answers have.

    The second of each pair is held out of the fit. A token is four bytes of prompt, whatever the server makes of it.
    """

    prompts: tuple[int, ...]
    prompts_held_out: tuple[int, ...]
    batches: tuple[int, ...]
    batches_held_out: tuple[int, ...]
    answer_tokens: int = 96
    repetitions: int = 5

    @classmethod
    def up_to(cls, largest_prompt: int, largest_batch: int, *, repetitions: int) -> Self:
        """Prompts from an eighth of the largest on, each twice the one before, and batches likewise; held out: what lies between."""
        prompts = tuple(largest_prompt >> shift for shift in (3, 2, 1, 0))
        batches = tuple(sorted({1, 2, max(2, largest_batch // 2), largest_batch}))
        return cls(
            prompts=prompts,
            prompts_held_out=tuple(size * 3 // 2 for size in prompts[:-1]),
            batches=batches,
            batches_held_out=tuple(sorted({max(1, largest_batch * 3 // 8), max(1, largest_batch * 3 // 4)})),
            repetitions=repetitions,
        )


class Measurer:
    """Measures the server at `endpoint`. `told` gets a line for each point.

    Raises:
        InputError: the endpoint is no http URL.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        model: str | None,
        sizes: Sizes,
        random: Random,
        told: Callable[[str], None],
    ) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme != "http" or not parts.hostname:
            problem = Problem(
                "CONFIG_INVALID",
                "this cannot be measured",
                path="endpoint",
                expected="http://HOST:PORT",
                found=endpoint,
            )
            raise InputError([problem])
        self._host, self._port = parts.hostname, parts.port or 80
        self._sizes = sizes
        self._random = random
        self._told = told
        self._numbers = count()
        self._model = model

    def measure(self) -> tuple[list[Measured], list[Measured]]:
        """All points: those to fit by, and those held out.

        Raises:
            CapacityError: the server cannot be reached, or does not answer as it should.
        """
        sizes = self._sizes
        self._model = self._model or self._first_model()
        self._prompt_s(min(sizes.prompts))
        fitted = [self._prompt(tokens) for tokens in sizes.prompts]
        held_out = [self._prompt(tokens) for tokens in sizes.prompts_held_out]
        with ThreadPoolExecutor(max(*sizes.batches, *sizes.batches_held_out)) as pool:
            fitted += [self._batch(requests, pool) for requests in sizes.batches]
            held_out += [self._batch(requests, pool) for requests in sizes.batches_held_out]
        return fitted, held_out

    def _prompt(self, tokens: int) -> Measured:
        seconds = min(self._prompt_s(tokens) for _ in range(self._sizes.repetitions))
        self._told(f"a prompt of {tokens} tokens alone: {seconds * 1e3:.2f} ms to the first token")
        return Measured(tokens, 1, 1, seconds)

    def _prompt_s(self, tokens: int) -> float:
        began, times = self._ask(self._text(tokens), 1)
        return times[0] - began

    def _batch(self, requests: int, pool: ThreadPoolExecutor) -> Measured:
        found = [self._step_s(requests, pool) for _ in range(self._sizes.repetitions)]
        times = [seconds for seconds in found if seconds is not None]
        if not times:
            raise self._failure(
                f"{requests} answers of {self._sizes.answer_tokens} tokens were never under way together"
            )
        seconds = statistics.median(times)
        self._told(f"{requests} answers at a time: {seconds * 1e3:.2f} ms a step")
        return Measured(0, requests, 0, seconds)

    def _step_s(self, requests: int, pool: ThreadPoolExecutor) -> float | None:
        """Mean time between tokens while all answers were under way; None if they never were."""
        shortest = min(self._sizes.prompts)
        prompts = [self._text(shortest) for _ in range(requests)]
        answers = [times for _, times in pool.map(lambda prompt: self._ask(prompt, self._sizes.answer_tokens), prompts)]
        begin, end = max(times[0] for times in answers), min(times[-1] for times in answers)
        steps = [sum(1 for at in times if begin < at <= end) for times in answers]
        return (end - begin) / statistics.mean(steps) if all(steps) else None

    def _text(self, tokens: int) -> str:
        """A prompt of so many tokens that begins like no other."""
        size = tokens * BYTES_PER_TOKEN
        words = [f"{next(self._numbers)}", *self._random.choices(_WORDS, k=size // 6 + 1)]
        return " ".join(words)[:size].ljust(size, ".")

    def _first_model(self) -> str:
        connection = HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        with closing(connection):
            try:
                connection.request("GET", "/v1/models")
                models = json.loads(connection.getresponse().read())
                return str(models["data"][0]["id"])
            except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
                raise self._failure(f"/v1/models names no model: {error!r}") from error

    def _ask(self, prompt: str, tokens: int) -> tuple[float, list[float]]:
        """When a request was sent, and when each token of its answer came."""
        body = {
            "model": self._model, "prompt": prompt, "max_tokens": tokens, "stream": True, "ignore_eos": True,
            "temperature": 0, "cache_prompt": False,
        }  # fmt: skip
        connection = HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        with closing(connection):
            try:
                connection.connect()
                began = time.monotonic()
                connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
                response = connection.getresponse()
                if response.status != 200:
                    raise self._failure(f"a completion was answered {response.status}: {response.read(200)!r}")
                times = [time.monotonic() for line in response if _has_token(line)]
            except (OSError, HTTPException) as error:
                raise self._failure(f"a completion failed: {error!r}") from error
        if not times:
            raise self._failure("a streamed completion had no tokens")
        return began, times

    def _failure(self, what: str) -> CapacityError:
        return CapacityError(
            "UNAVAILABLE",
            f"http://{self._host}:{self._port}: {what}",
            hint="It has to answer /v1/models and streamed /v1/completions as OpenAI's API does.",
        )


def _has_token(line: bytes) -> bool:
    if not line.startswith(b"data: {"):
        return False
    event = json.loads(line[6:])
    choices = event.get("choices") if isinstance(event, Mapping) else None
    return isinstance(choices, list) and any(choice.get("text") for choice in choices)
