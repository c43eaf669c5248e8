"""What goes wrong with a server, as errors of the fault tree: which of it passes by itself, and what to do.

`retryable` in an error's details says whether trying again may help. Addresses are shown without their query.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio
import httpx

from hotbay.errors import PackageError, printable
from hotbay.packages.sources.addresses import shown

EXCERPT_CHARACTERS: Final = 200
NO_ACCESS: Final = (401, 403)

__all__ = ["EXCERPT_CHARACTERS", "NO_ACCESS", "fetch_failed", "is_outage", "translated", "within"]


def fetch_failed(message: str, *, url: str, retryable: bool, hint: str = "", status: int | None = None) -> PackageError:
    """The error for a server that does not do its part. Without a hint: it passes by itself, or the source is wrong."""
    default = "It is tried again by itself." if retryable else "Correct the source's address, or what is served there."
    details: dict[str, object] = {"url": shown(url), "retryable": retryable}
    if status is not None:
        details["status"] = status
    return PackageError("FETCH_FAILED", message, hint=hint or default, details=details)


def is_outage(error: PackageError) -> bool:
    """Whether it says that the server does not serve us now, in place of something about one thing that it serves."""
    return bool(error.details.get("retryable")) or error.details.get("status") in NO_ACCESS


@contextmanager
def within(seconds: float, url: str) -> Iterator[None]:
    """Bounds a whole look. Raises PackageError FETCH_FAILED when it takes longer."""
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        message = f"{shown(url)}: the look did not end within {seconds:g} s"
        raise fetch_failed(message, url=url, retryable=True) from error


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turns the client library's errors into ours."""
    try:
        yield
    except httpx.TimeoutException as error:
        message = f"{shown(url)}: nothing came in time ({_kind(error)})"
        raise fetch_failed(message, url=url, retryable=True) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        if _is_distrusted(error):
            hint = "Name the authority that signed the server's certificate in `ca_file`."
            raise fetch_failed(f"{shown(url)}: {error}", url=url, retryable=False, hint=hint) from error
        detail = printable(str(error)) or _kind(error)
        raise fetch_failed(f"{shown(url)}: {detail[:EXCERPT_CHARACTERS]}", url=url, retryable=True) from error


def _is_distrusted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def _kind(error: Exception) -> str:
    return type(error).__name__
