"""Load that stops when it is told to, against a gateway that is a list."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import pytest
from hotbay.demo.client import Answer, _Stream
from hotbay.demo.load import Load
from hotbay.demo.record import Sample
from hotbay.demo.trace import Arrival

TIMEOUT_S = 5.0


class ListedAsker:
    """Answers at once and notes what was asked; tells when `enough` requests came."""

    def __init__(self, enough: int, *, error: str = "") -> None:
        self.asked: list[list[dict[str, str]]] = []
        self.enough = asyncio.Event()
        self._enough = enough
        self._error = error

    async def ask(self, messages: Sequence[Mapping[str, str]], answer_tokens: int) -> Answer:
        self.asked.append([dict(message) for message in messages])
        if len(self.asked) >= self._enough:
            self.enough.set()
        await asyncio.sleep(0)
        return Answer("x" * answer_tokens, Sample(0, 0, 0, self._error))

    async def close(self) -> None: ...


async def converse(asker: ListedAsker) -> None:
    load = Load(asker, lambda: 0.0)  # type: ignore[arg-type]
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        group.create_task(load.converse(0, 3))
        await asker.enough.wait()
        load.stop()


def test_a_conversation_carries_its_answers_along():
    async def main() -> list[list[dict[str, str]]]:
        asker = ListedAsker(9)
        await converse(asker)
        return asker.asked

    asked = asyncio.run(main())
    roles = {len(messages): [m["role"] for m in messages] for messages in asked}
    assert roles[2] == ["system", "user"]
    assert roles[4] == ["system", "user", "assistant", "user"]


def test_a_conversation_ends_with_its_first_failure():
    async def main() -> list[list[dict[str, str]]]:
        asker = ListedAsker(5, error="refused")
        await converse(asker)
        return asker.asked

    assert {len(messages) for messages in asyncio.run(main())} == {2}


def test_a_replay_sends_in_order_and_begins_again():
    async def main() -> list[str]:
        asker = ListedAsker(5)
        load = Load(asker, lambda: 0.0)  # type: ignore[arg-type]
        arrivals = [Arrival(0.0, "a", 1), Arrival(0.0, "b", 1)]
        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
            group.create_task(load.replay(arrivals, limit=2))
            await asker.enough.wait()
            load.stop()
        return [messages[0]["content"] for messages in asker.asked]

    assert asyncio.run(main())[:5] == ["a", "b", "a", "b", "a"]


def chunk(content: str | None = None, finish: str | None = None, tokens: int | None = None) -> SimpleNamespace:
    choice = SimpleNamespace(delta=SimpleNamespace(content=content), finish_reason=finish)
    usage = None if tokens is None else SimpleNamespace(completion_tokens=tokens)
    return SimpleNamespace(choices=[] if tokens is not None else [choice], usage=usage)


WHOLE = [chunk(""), chunk("ab"), chunk("c"), chunk(finish="length"), chunk(tokens=3)]


@pytest.mark.parametrize(
    ("chunks", "fault"),
    [
        (WHOLE, ""),
        ([], "without a finish reason"),
        (WHOLE[:3], "without a finish reason"),
        (WHOLE[:4], "without its usage"),
        ([*WHOLE[1:2], *WHOLE[3:]], "3 tokens were asked for, 3 reported, 2 received"),
        ([*WHOLE[:4], chunk(tokens=2)], "3 tokens were asked for, 2 reported, 3 received"),
    ],
)
def test_only_a_whole_answer_has_no_fault(chunks: list[SimpleNamespace], fault: str):
    stream = _Stream([])
    for number, part in enumerate(chunks):
        stream.take(part, float(number))

    assert fault in stream.fault(3)
    assert bool(fault) == bool(stream.fault(3))


def test_the_first_token_is_the_first_chunk_with_text():
    stream = _Stream([])
    for number, part in enumerate(WHOLE):
        stream.take(part, float(number))

    assert stream.first_s == 1.0
