"""The command's end of the admin socket: asks, and raises what the host raised. Blocks."""

import http.client
from collections.abc import Generator, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final

import orjson

from hotbay.cli.exit_codes import NoHostError
from hotbay.errors import CapacityError
from hotbay.gateway.admin_connection import AdminConnection
from hotbay.gateway.admin_errors import error_of

__all__ = ["AdminClient", "Page"]

Page = Mapping[str, object]

ANSWER_TIMEOUT_S: Final = 120.0
"""A collection of a large store, or an apply that waits for a start, takes its time."""
# Ten thousand endpoints are a quarter of it.
_PAGE_LIMIT_BYTES: Final = 16 << 20
_LINE_LIMIT_BYTES: Final = _PAGE_LIMIT_BYTES
_GONE: Final = "the host may have ended: look at its log, then ask again"


class AdminClient:
    """One host. Every method raises `NoHostError` when nobody answers, and otherwise the host's own `HostError`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, target: str) -> Page:
        """Ask for something that changes nothing."""
        return self._page("GET", target, None)

    def post(self, target: str, arguments: Mapping[str, object]) -> Page:
        """Have something done."""
        return self._page("POST", target, orjson.dumps(arguments))

    def lines(self, target: str) -> Generator[Page, None, None]:
        """Pages of a stream until the host ends it; closing the iterator tells the host."""
        connection = AdminConnection(self.path, ANSWER_TIMEOUT_S)
        try:
            answer = self._ask(connection, "GET", target, None)
            connection.wait_without_end()
            while line := self._line(answer):
                page = _json(line)
                if not isinstance(page, dict):
                    raise error_of(page, answer.status)
                if "error" in page and "code" in page:
                    raise error_of(page, HTTPStatus.INTERNAL_SERVER_ERROR)
                yield page
        finally:
            connection.close()

    def _page(self, method: str, target: str, body: bytes | None) -> Page:
        connection = AdminConnection(self.path, ANSWER_TIMEOUT_S)
        try:
            answer = self._ask(connection, method, target, body)
            page = _json(self._whole(answer))
        finally:
            connection.close()
        if not isinstance(page, dict):
            raise error_of(page, answer.status)
        return page

    def _ask(
        self, connection: AdminConnection, method: str, target: str, body: bytes | None
    ) -> http.client.HTTPResponse:
        try:
            connection.connect()
        except BlockingIOError as error:
            message = f"the host at {self.path} does not get round to its clients: too many wait"
            raise CapacityError("UNAVAILABLE", message, hint="repeat it in a few seconds; see its log") from error
        except OSError as error:
            raise self._nobody(error) from error
        try:
            with suppress(BrokenPipeError):
                # A host that refuses before the body came says so, and closes.
                connection.request(method, target, body)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error
        if answer.status != HTTPStatus.OK:
            raise error_of(_json(self._whole(answer)), answer.status)
        return answer

    def _whole(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            data = answer.read(_PAGE_LIMIT_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error
        if answer.length:
            raise self._broken(http.client.IncompleteRead(data, answer.length))
        return data

    def _line(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            return answer.readline(_LINE_LIMIT_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error

    def _nobody(self, error: OSError) -> NoHostError:
        message = f"no host answers at {self.path}: {error.strerror or error}"
        if isinstance(error, PermissionError):
            return NoHostError(message, hint="run the command as the host's user, or as root")
        return NoHostError(message)

    def _broken(self, error: Exception) -> CapacityError:
        return CapacityError("UNAVAILABLE", f"the host at {self.path} did not answer: {error!r}", hint=_GONE)


def _json(data: bytes) -> object:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
