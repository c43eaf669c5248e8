"""What precise types know: engines' own word where prompts' tokens are known, and else the estimate. Pure but for its lock.

Two indexes stand side by side. `BlockIndex` follows events and knows blocks of token ids. `PrefixIndex` guesses, as
approx-prefix-cache-producer does, from where prompts were sent; it is asked for prompts whose token ids nobody told, and
forgets an endpoint whose engine says that its cache is empty. A request is matched by one of them, never by both.
The lock guards both: messages come in a thread of their own.
"""

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final, NamedTuple

from hotbay_sdk import Endpoints, PickedTargets, Request

from hotbay_prefix_cache.blocks import MAX_STRANGERS, BlockIndex, whose
from hotbay_prefix_cache.index import PROMPT_BOUNDARY, PrefixIndex
from hotbay_prefix_cache.kv_events import Message
from hotbay_prefix_cache.match_info import computing
from hotbay_prefix_cache.tokens import prompt_keys, read_prompts, request_extras

ESTIMATE_BLOCK_TOKENS: Final = 64
_ESTIMATE_CAPACITY: Final = 31_250
TOKENS: Final = "TokenizedPrompt.token_ids"
"""Column of scope text: the token ids of the prompts, in decimal, blanks between them and a NUL between two prompts."""
ADDRESS: Final = "endpoint.address"
READS: Final = (
    *("request.id", "request.prompt", "request.prompt_hashes"),
    *("request.target_model", "request.lora", "request.cache_salt", ADDRESS),
)


class Match(NamedTuple):
    """Leading blocks by row, for rows that hold any; blocks of the prompt; tokens of a block."""

    counts: Mapping[int, int]
    total: int
    block_tokens: int


class Matcher:
    """Follows messages and requests, and tells how much of a prompt each endpoint holds.

    Args:
        block_tokens: the size in which matches are told as long as no engine has told its own.
        speculative_s: seconds for which a request's blocks count as held where it was sent; 0: only engines' word counts.
    """

    def __init__(self, *, block_tokens: int, speculative_s: float) -> None:
        self._block_tokens = block_tokens
        self._speculative_s = speculative_s
        self._lock = Lock()
        self.index = BlockIndex()
        self._estimate = PrefixIndex()
        self.places: Mapping[str, str] = {}
        """Endpoint id → `host:port`, of the newest view; another map where anything has changed."""
        self._codes = b""
        self._values: Sequence[str] = ()
        self._ids: Sequence[str] = ()
        self._changes = -1
        self._slots: dict[int, tuple[int, ...]] = {}
        self._owned: frozenset[int] = frozenset()

    def receive(self, message: Message) -> None:
        """Follow one message of an engine."""
        with self._lock:
            emptied = self.index.apply(message)
            for row, numbers in self._slots.items() if emptied is not None else ():
                if emptied in numbers:
                    self._estimate.clear(row)

    def take_over(self, index: BlockIndex) -> None:
        """Begin with what another one knew of engines."""
        with self._lock:
            self.index, self._changes = index, -1

    def match(self, requests: Sequence[Request], endpoints: Endpoints, now: float) -> list[Match]:
        """One match for each request. `now`: monotonic seconds."""
        prompts = [_prompts(request) for request in requests]
        with self._lock:
            self._follow(endpoints)
            self.index.expire(now)
            return [
                self._match_tokens(request, found) if found else self._match_text(request)
                for request, found in zip(requests, prompts, strict=True)
            ]

    def sent(self, request: Request, picked: PickedTargets, endpoints: Endpoints, now: float) -> None:
        """Note where a request goes."""
        prompts = _prompts(request)
        with self._lock:
            self._follow(endpoints)
            for name in computing(picked.targets, picked.results):
                row = self._estimate.row_of(name)
                if row is None:
                    continue
                if not prompts:
                    hashes = request.prompt_hashes.tolist()
                    self._estimate.learn(row, hashes, _ESTIMATE_CAPACITY, owner=_owner(request))
                elif self._speculative_s:
                    self._expect(request, prompts, row, now)

    def withdrawn(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
        """Take back what was noted of a request that ended without a first byte."""
        prompts, owner = _prompts(request), _owner(request)
        with self._lock:
            self._follow(endpoints)
            for name in computing(picked.targets, picked.results):
                row = self._estimate.row_of(name)
                if row is not None and not prompts and owner:
                    self._estimate.withdraw(row, request.prompt_hashes.tolist(), owner)
                for number in self._slots.get(row, ()) if row is not None else ():
                    for keys in self._keys(request, prompts, self._size(number)):
                        self.index.unexpect(number, keys)

    def _match_text(self, request: Request) -> Match:
        hashes = request.prompt_hashes.tolist()
        total = len(hashes) - hashes.count(PROMPT_BOUNDARY)
        return Match(self._estimate.match(hashes), total, ESTIMATE_BLOCK_TOKENS)

    def _match_tokens(self, request: Request, prompts: Sequence[Sequence[int]]) -> Match:
        extras = request_extras(request.lora, request.cache_salt)
        held: dict[int, int] = {}
        among = self._among(request)
        for size, numbers in among.items():
            for prompt in prompts:
                for number, count in self.index.match(prompt_keys(prompt, size, extras), numbers).items():
                    held[number] = held.get(number, 0) + count * size
        unit = min(among, default=self._block_tokens)
        counts = {}
        for row, mine in self._slots.items():
            tokens = max((held.get(number, 0) for number in mine), default=0)
            if tokens >= unit:
                counts[row] = tokens // unit
        return Match(counts, sum(len(prompt) // unit for prompt in prompts), unit)

    def _among(self, request: Request) -> dict[int, int]:
        """Block size → set of the slots that have it, of endpoints' slots that may serve this model."""
        found: dict[int, int] = {}
        for number in self._owned:
            slot = self.index.slots[number]
            # An adapter is asked for by its own name, which is part of the blocks' keys.
            if slot.block_tokens and (request.lora or slot.model in ("", request.target_model)):
                found[slot.block_tokens] = found.get(slot.block_tokens, 0) | 1 << number
        return found

    def _expect(self, request: Request, prompts: Sequence[Sequence[int]], row: int, now: float) -> None:
        mine = self._slots.get(row, ())
        number = mine[0] if mine else self.index.slot_of(self._ids[row])
        if number is None:
            return
        slot = self.index.slots[number]
        slot.block_tokens = slot.block_tokens or self._block_tokens
        for keys in self._keys(request, prompts, slot.block_tokens):
            self.index.expect(number, keys, now + self._speculative_s)

    def _keys(self, request: Request, prompts: Sequence[Sequence[int]], size: int) -> list[list[int]]:
        extras = request_extras(request.lora, request.cache_salt)
        return [list(prompt_keys(prompt, size, extras)) for prompt in prompts] if size else []

    def _size(self, number: int) -> int:
        return self.index.slots[number].block_tokens

    def _follow(self, endpoints: Endpoints) -> None:
        """Take the current membership: what is known of endpoints that are gone is dropped."""
        ids = endpoints.ids
        self._estimate.follow(ids)
        values, codes = endpoints.table(ADDRESS)
        if ids is not self._ids or codes.tobytes() != self._codes or values is not self._values:
            self._ids, self._codes, self._values = ids, codes.tobytes(), values
            self.places = {name: values[code] for name, code in zip(ids, codes, strict=True) if code < len(values)}
        elif self.index.changes == self._changes:
            return
        self._slots = whose(self.index.slots, ids, self.places)
        owned = frozenset(number for numbers in self._slots.values() for number in numbers)
        strangers = [n for n, slot in enumerate(self.index.slots) if slot.source and n not in owned]
        for number in [n for n in strangers if n in self._owned] or strangers[: -MAX_STRANGERS or None]:
            self.index.release(number)
        self._owned = owned
        self._changes = self.index.changes


def _prompts(request: Request) -> tuple[tuple[int, ...], ...]:
    return read_prompts(request.text(TOKENS) or request.prompt)


def _owner(request: Request) -> int:
    return hash(request.id) if request.id else 0
