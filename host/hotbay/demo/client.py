"""One streamed request with the real OpenAI client, and whether its answer was whole.

Whole means: no exception, a finish reason, and the usage chunk that follows it, with as many tokens as were asked for
and as many bytes of text (a token of the generated model is a byte). Nothing is ever tried again.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hotbay.demo.parts import load_part
from hotbay.demo.record import Record, Sample

__all__ = ["Answer", "Asker"]

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 30.0
MODEL: Final = "hotbay-demo"
_CONNECTIONS: Final = 64

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the text as far as it came, and how the request went."""

    text: str
    sample: Sample


@dataclass(slots=True)
class _Stream:
    """What has been read of a stream. `first_s` is the time of the first chunk with text."""

    parts: list[str]
    first_s: float | None = None
    finish_reason: str = ""
    tokens: int | None = None

    def take(self, chunk: Any, now_s: float) -> None:
        if chunk.usage is not None:
            self.tokens = chunk.usage.completion_tokens
        for choice in chunk.choices:
            if choice.delta.content:
                if self.first_s is None:
                    self.first_s = now_s
                self.parts.append(choice.delta.content)
            if choice.finish_reason:
                self.finish_reason = choice.finish_reason

    def fault(self, wanted_tokens: int) -> str:
        """What is missing; empty for a whole answer."""
        if not self.finish_reason:
            return "the stream ended without a finish reason"
        if self.tokens is None:
            return "the stream ended without its usage"
        size = sum(len(part.encode()) for part in self.parts)
        if not self.tokens == size == wanted_tokens:
            return f"{wanted_tokens} tokens were asked for, {self.tokens} reported, {size} received"
        return ""


class Asker:
    """Asks one gateway. Any number of requests at a time; `close` in the end."""

    def __init__(self, url: str, record: Record, clock: Callable[[], float]) -> None:
        openai: Any = load_part("openai")
        # The machine's proxy settings are not for servers of its own.
        http = openai.DefaultAsyncHttpxClient(trust_env=False)
        self._client: Any = openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=REQUEST_TIMEOUT_S, http_client=http
        )
        self._record = record
        self._clock = clock

    async def ask(self, messages: Sequence[Message], answer_tokens: int) -> Answer:
        """Send one request and read its answer to the end; the record gets a sample whatever happens."""
        began_s = self._clock()
        stream = _Stream([])
        error = "given up when the run ended"
        self._record.in_flight += 1
        try:
            await self._read(stream, messages, answer_tokens)
            error = stream.fault(answer_tokens)
        except Exception as raised:  # whatever the client raises: the request failed, and that is counted
            logger.debug("request_failed", exc_info=True)
            error = f"{type(raised).__name__}: {raised}"
        finally:
            self._record.in_flight -= 1
            ttft_s = None if stream.first_s is None else stream.first_s - began_s
            sample = Sample(began_s, self._clock(), ttft_s, error)
            self._record.add(sample)
        return Answer("".join(stream.parts), sample)

    async def _read(self, stream: _Stream, messages: Sequence[Message], answer_tokens: int) -> None:
        chunks = await self._client.chat.completions.create(
            model=MODEL,
            messages=list(messages),
            max_tokens=answer_tokens,
            stream=True,
            stream_options={"include_usage": True},
        )
        async with chunks:
            async for chunk in chunks:
                stream.take(chunk, self._clock())

    async def close(self) -> None:
        await self._client.close()
