"""The view through which authors read what is told of a response. Imported by what is told of any."""

from __future__ import annotations

from hotbay_sdk._errors import UndeclaredReadError
from hotbay_sdk.protocol.calls import RESPONSE_HEADER_READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from hotbay_sdk.protocol.values import Value


class Response:
    """How a model server answers one request, read-only, as far as it is known at the moment."""

    __slots__ = ("_declared", "_told", "_type_name")

    def __init__(self, told: Mapping[str, Value], declared: frozenset[str], type_name: str) -> None:
        self._told = told
        self._declared = declared
        self._type_name = type_name

    def _text(self, name: str) -> str:
        value = self._told.get(name)
        return value if isinstance(value, str) else ""

    def _whole(self, name: str) -> int | None:
        value = self._told.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def endpoint(self) -> str:
        """Id of the endpoint that answers."""
        return self._text("endpoint")

    @property
    def profile(self) -> str:
        """The profile that chose the endpoint."""
        return self._text("profile")

    @property
    def status(self) -> int:
        """The HTTP status, 0 where none came."""
        return self._whole("status") or 0

    @property
    def headers(self) -> Mapping[str, str]:
        """The declared headers that the response has (`response.headers[NAME]`), by names in lower case."""
        value = self._told.get("headers")
        return value if isinstance(value, dict) else {}  # type: ignore[return-value]  # the host sends texts

    def header(self, name: str) -> str | None:
        """The value of a declared header, None where the response has none, and in all that is told of its body.

        Args:
            name: the header's name in any case.

        Raises:
            UndeclaredReadError: the type does not list `response.headers[NAME]` in `reads`.
        """
        name = name.lower()
        if f"{RESPONSE_HEADER_READ}{name}]" not in self._declared:
            raise UndeclaredReadError(f"{RESPONSE_HEADER_READ}{name}]", self._type_name)
        return self.headers.get(name)

    @property
    def bytes(self) -> int:
        """Bytes of the body so far."""
        return self._whole("bytes") or 0

    @property
    def chunks(self) -> int:
        """Pieces of the body so far, as they came."""
        return self._whole("chunks") or 0

    @property
    def usage(self) -> Mapping[str, int] | None:
        """`prompt_tokens`, `completion_tokens` and `cached_tokens` as the server counted them, None where it has not said."""
        value = self._told.get("usage")
        return value if isinstance(value, dict) else None  # type: ignore[return-value]  # the host sends whole numbers

    @property
    def end(self) -> bool:
        """Whether this is the last that is told of the response."""
        return self._told.get("end") is True

    @property
    def cause(self) -> str | None:
        """Why it ended: `natural`, `client-disconnect`, `evicted` or `error`; None before the end."""
        return self._text("cause") or None

    @property
    def first_byte(self) -> bool:
        """Whether any byte of the body came."""
        return self._told.get("first_byte") is True

    @property
    def ttft_us(self) -> int | None:
        """Microseconds from sending the request to the first byte of the body, None where none came."""
        return self._whole("ttft_us")

    @property
    def elapsed_us(self) -> int | None:
        """Microseconds from sending the request to now."""
        return self._whole("elapsed_us")
