"""Looks names up in threads of their own, and connects to the addresses in their order. One resolver serves a whole process.

Not the loop's `getaddrinfo`: its threads are few, shared with all else, and held by whoever gave up on a name that nobody
answers. A lookup here has a thread to itself, which ends with it; a process that ends waits for none.
"""

import asyncio
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, TypeVar

from hotbay.resolving.names import Names, Told

__all__ = ["SYSTEM", "NameLookupError", "Resolver", "connect", "system_addresses"]

_Protocol = TypeVar("_Protocol", bound=asyncio.BaseProtocol)

_LITERALS: Final = 4096
_MOST_ROUNDS: Final = 8192
"""Of beginning lookups without a thread: each ends one name at least, which is told of for FRESH_S; twice the names that
are known."""


class NameLookupError(OSError):
    """A name has no addresses now; the text says which and why."""


def system_addresses(host: str) -> tuple[str, ...]:
    """A name's addresses as the system orders them (RFC 6724). Blocks. Raises OSError, or UnicodeError for no name."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(it[4][0]) for it in found))


class Resolver:
    """See the module. Any thread, and any event loop, may use it at any time.

    Args:
        look_up: a name's addresses in the order in which they are to be tried; blocks. Raises OSError or ValueError.
        clock: monotonic seconds.
        start: runs what it is given in a thread of its own. Raises RuntimeError when there is no thread more.
    """

    def __init__(
        self,
        look_up: Callable[[str], tuple[str, ...]] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._look_up = look_up or system_addresses
        self._clock = clock
        self._start = start or _start_thread
        self._lock = threading.Lock()
        self._names = Names()
        self._waiters: dict[str, set[_Waiter]] = {}

    def is_waited_for(self, host: str) -> bool:
        """Whether a lookup of the name is under way."""
        with self._lock:
            return self._names.is_waited_for(host)

    async def addresses(self, host: str) -> tuple[str, ...]:
        """The addresses of a name, or the address that `host` is, which is not looked up.

        Waits as long as the system's resolver does unless the name was good lately: give it a deadline.

        Raises:
            NameLookupError: there are none.
        """
        if _is_literal(host):
            return (host,)
        with self._lock:
            told = self._names.ask(host, self._clock())
            waiter = _Waiter(asyncio.get_running_loop()) if told.wait_s else None
            if waiter is not None:
                self._waiters.setdefault(host, set()).add(waiter)
        self._begin()
        if waiter is not None:
            told = await self._answer(host, waiter, told)
        if not told.addresses:
            raise NameLookupError(f"no address of {host!r}: {told.error}")
        return told.addresses

    async def _answer(self, host: str, waiter: "_Waiter", last_good: Told) -> Told:
        timer = waiter.loop.call_later(last_good.wait_s, waiter.tell, last_good) if last_good.addresses else None
        try:
            return await waiter.told
        finally:
            if timer is not None:
                timer.cancel()
            with self._lock:
                waiters = self._waiters.get(host, set())
                waiters.discard(waiter)
                if not waiters:
                    self._waiters.pop(host, None)

    def _begin(self) -> None:
        # A name that got no thread makes room for others that wait, and nobody else may be there to begin them.
        for _ in range(_MOST_ROUNDS):
            with self._lock:
                begun = self._names.begin(self._clock())
            started = [self._begun(name) for name in begun]
            if all(started):
                return

    def _begun(self, name: str) -> bool:
        try:
            self._start(partial(self._run, name))
        except RuntimeError as error:
            # The process may have no thread more.
            self._end(name, (), str(error))
            return False
        return True

    def _run(self, name: str) -> None:
        addresses, error = tuple[str, ...](), "the lookup broke off"
        try:
            addresses, error = self._look_up(name), "it has none"
        except (OSError, ValueError) as failure:
            # A name that no resolver takes is a UnicodeError.
            error = (isinstance(failure, OSError) and failure.strerror) or str(failure)
        finally:
            # Whatever else it raised is the thread's to report, and who waits is told in any case.
            self._end(name, addresses, error)
            self._begin()

    def _end(self, name: str, addresses: tuple[str, ...], error: str) -> None:
        with self._lock:
            now = self._clock()
            names = self._names
            told = names.answered(name, addresses, now) if addresses else names.failed(name, error, now)
            waiters = self._waiters.pop(name, set())
        for waiter in waiters:
            waiter.tell_from_thread(told)


def _start_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="lookup", daemon=True).start()


class _Waiter:
    """Somebody who waits for a lookup, on a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.told: asyncio.Future[Told] = loop.create_future()

    def tell(self, told: Told) -> None:
        """On the loop."""
        if not self.told.done():
            self.told.set_result(told)

    def tell_from_thread(self, told: Told) -> None:
        try:
            self.loop.call_soon_threadsafe(self.tell, told)
        except RuntimeError:
            # The loop is closed: nobody waits any more.
            return


SYSTEM: Final = Resolver()
"""For all of this process: who asks for a name that another part of it looks up waits for the same answer."""


async def connect(
    factory: Callable[[], _Protocol],
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    resolver: Resolver = SYSTEM,
) -> _Protocol:
    """Connect to a name or an address: to the first of the name's addresses that takes the connection, tried in order.

    Give it a deadline. A server that answers and fails in TLS is the one that was meant: no other is tried.

    Args:
        tls: proves `host`; None for a connection without.

    Raises:
        NameLookupError: the name has no addresses.
        OSError: none of them takes a connection, `ssl.SSLError` among them.
    """
    loop, errors = asyncio.get_running_loop(), list[OSError]()
    for address in await resolver.addresses(host):
        try:
            _, protocol = await loop.create_connection(
                factory, address, port, ssl=tls, server_hostname=None if tls is None else host
            )
        except ssl.SSLError:
            raise
        except OSError as error:
            errors.append(error)
        else:
            return protocol
    if len(errors) == 1:
        raise errors[0]
    raise OSError(f"none of the {len(errors)} addresses of {host!r} takes a connection: {', '.join(map(str, errors))}")


@lru_cache(_LITERALS)
def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
