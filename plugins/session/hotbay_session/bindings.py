"""Which session is bound to which endpoint. Pure: `now` is monotonic seconds and never goes back.

A binding is made and moved by `bind` alone, when its request is sent, and ends in one of four ways: nobody used it for the
time to live, which only a sweep notices; its endpoint is gone; its request ended without a first byte; or there are too many, and
it is the one that was used longest ago. `_bound` is in the order of last use.
"""

import json
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

MAX_SESSIONS: Final = 65_536
"""Bindings of one instance, some 20 MB."""
MAX_PENDING: Final = 8192
"""Requests that were rated and not yet sent; of more, the oldest are judged by the membership alone."""
_LONGEST_ID: Final = 128
"""Longer ids are kept as their digest: clients choose them."""
_PIECE_SESSIONS: Final = 1024


class StateRefusedError(ValueError):
    """The bytes are no bindings."""


class _Binding(NamedTuple):
    endpoint: str
    used_s: float


class Bindings:
    """Bindings of one instance.

    Args:
        ttl_s: how long a binding holds that nobody uses.
        sweep_s: how often those that do not hold any more are looked for.
    """

    __slots__ = ("_bound", "_counts", "_ids", "_members", "_pending", "_sweep_s", "_swept_s", "_ttl_s")

    def __init__(self, *, ttl_s: float, sweep_s: float) -> None:
        self._ttl_s = ttl_s
        self._sweep_s = sweep_s
        self._swept_s: float | None = None
        self._bound: OrderedDict[str, _Binding] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._pending: OrderedDict[str, bool] = OrderedDict()
        self._ids: Sequence[str] = ()
        self._members: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self._bound)

    @property
    def per_endpoint(self) -> dict[str, int]:
        """Sessions of each endpoint that has any, most first."""
        return dict(self._counts.most_common())

    def follow(self, ids: Sequence[str], now: float) -> None:
        """Take the current membership, and sweep where it is time. Bindings to endpoints that are gone end."""
        if self._swept_s is None:
            self._swept_s = now
        elif now - self._swept_s >= self._sweep_s:
            self._sweep(now)
        if ids is self._ids:
            return
        self._ids, self._members = ids, frozenset(ids)
        if self._counts.keys() <= self._members:
            return
        for session in [s for s, binding in self._bound.items() if binding.endpoint not in self._members]:
            self._end(session)

    def endpoint_of(self, session: str) -> str:
        """The endpoint that a session is bound to; empty for none."""
        binding = self._bound.get(_short(session)) if session else None
        return binding.endpoint if binding else ""

    def seen(self, request_id: str, *, present: bool) -> None:
        """Note of a request of a bound session whether its endpoint was among the candidates; of several times, any counts."""
        if not request_id:
            return
        self._pending[request_id] = present or self._pending.get(request_id, False)
        self._pending.move_to_end(request_id)
        if len(self._pending) > MAX_PENDING:
            self._pending.popitem(last=False)

    def bind(self, session: str, endpoint: str, request_id: str, now: float) -> None:
        """A request of the session goes to `endpoint`, empty if to none.

        An unbound session is bound to it. A bound one only moves if its endpoint was not among the candidates: whoever outweighed
        it this once does not move the session.
        """
        present = self._pending.pop(request_id, None)
        if not session or not endpoint:
            return
        name, bound = _short(session), self.endpoint_of(session)
        if bound:
            stays = bound in self._members if present is None else present
            endpoint = bound if stays else endpoint
            self._end(name)
        self._begin(name, _Binding(endpoint, now))
        if len(self._bound) > MAX_SESSIONS:
            self._end(next(iter(self._bound)))

    def unbind(self, session: str, endpoint: str) -> None:
        """A request of the session ended at `endpoint` without a first byte: if it is bound to that, it is no more."""
        if session and endpoint and self.endpoint_of(session) == endpoint:
            self._end(_short(session))

    def pieces(self, now: float) -> Iterator[bytes]:
        """All bindings, for the next version: JSON lines of [session, endpoint, seconds since it was used], oldest first."""
        lines = [json.dumps([s, b.endpoint, round(now - b.used_s, 3)]) + "\n" for s, b in self._bound.items()]
        for start in range(0, len(lines), _PIECE_SESSIONS):
            yield "".join(lines[start : start + _PIECE_SESSIONS]).encode()

    def restore(self, stream: Iterable[bytes], now: float) -> None:
        """Begin with `pieces`, cut anyhow. Raises `StateRefusedError`; nothing has changed then."""
        found: list[tuple[str, _Binding]] = []
        for line in b"".join(stream).splitlines():
            try:
                session, endpoint, age_s = json.loads(line)
                found.append((str(session), _Binding(str(endpoint), now - float(age_s))))
            except (ValueError, TypeError, RecursionError) as error:
                raise StateRefusedError(f"a line is no binding: {error}") from error
        for session, binding in found[-MAX_SESSIONS:]:
            if session in self._bound:
                self._end(session)
            self._begin(session, binding)

    def _sweep(self, now: float) -> None:
        self._swept_s = now
        for session, binding in list(self._bound.items()):
            if now - binding.used_s < self._ttl_s:
                return
            self._end(session)

    def _begin(self, name: str, binding: _Binding) -> None:
        self._bound[name] = binding
        self._counts[binding.endpoint] += 1

    def _end(self, name: str) -> None:
        endpoint = self._bound.pop(name).endpoint
        self._counts[endpoint] -= 1
        if not self._counts[endpoint]:
            del self._counts[endpoint]


def _short(session: str) -> str:
    if len(session) <= _LONGEST_ID:
        return session
    return "#" + blake2b(session.encode(errors="surrogatepass"), digest_size=32).hexdigest()
