"""The ways into a registry: a user and password with each request, a token that the operator was given, or tokens from
the service that the registry names, for which the user and password, if any, are given there.

Where the registry sends us for a token is its word only: that service must be https, or, for a registry inside this
machine, inside it too. What a token is for is never the registry's word: it is asked for this repository alone.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import anyio
import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hotbay.packages.sources.addresses import Origin, origin_of, shown
from hotbay.packages.sources.credentials import Credentials
from hotbay.packages.sources.faults import fetch_failed
from hotbay.packages.sources.headers import Challenge
from hotbay.packages.sources.web import WebClient, refused

_ANSWER_LIMIT_BYTES: Final = 256 << 10

__all__ = ["RegistryAccess"]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    token: Annotated[str, Field(max_length=_ANSWER_LIMIT_BYTES)] = ""
    access_token: Annotated[str, Field(max_length=_ANSWER_LIMIT_BYTES)] = ""


class RegistryAccess:
    """Implements `Access` for one registry and the `scopes` given, such as `repository:plugins/scorer:pull`.

    A token is used until the registry no longer takes it: that says more than its stated life.
    """

    def __init__(self, origin: Origin, credentials: Credentials, scopes: Sequence[str]) -> None:
        self._origin = origin
        self._credentials = credentials
        self._scopes = tuple(scopes)
        self._token: str | None = None
        self._takes_basic = False
        self._turn = anyio.Lock()

    async def header(self) -> str | None:
        if (given := await self._credentials.bearer()) is not None:
            return given
        if self._takes_basic:
            return await self._credentials.basic()
        return self._token

    async def renew(self, used: str | None, challenges: Sequence[Challenge], client: WebClient) -> bool:
        async with self._turn:
            # Another request may have been refused for the same reason, and done this already.
            if used != await self.header():
                return True
            for challenge in challenges:
                if challenge.scheme == "bearer" and self._credentials.token_file is None:
                    self._token = await self._new_token(challenge, client)
                    return True
                if challenge.scheme == "basic" and not self._takes_basic and self._credentials.username is not None:
                    self._takes_basic = True
                    return True
            return False

    async def _new_token(self, challenge: Challenge, client: WebClient) -> str:
        realm = challenge.parameters.get("realm", "")
        service = challenge.parameters.get("service")
        try:
            issuer = origin_of(realm)
            is_far = issuer.scheme != "https" and not (issuer.is_loopback and self._origin.is_loopback)
            if is_far:
                raise ValueError("is not https")
        except ValueError as error:
            message = f"the registry's token service {shown(realm)[:200]!r} is not asked: {error}"
            raise fetch_failed(message, url=realm[:200], retryable=False) from error
        parameters: list[tuple[str, str | int | float | bool | None]] = [
            *([("service", service)] if service else []),
            *(("scope", scope) for scope in self._scopes),
        ]
        url = str(httpx.URL(realm).copy_merge_params(parameters))
        basic = await self._credentials.basic()
        headers = {"Authorization": basic} if basic else {}
        answer = await client.read(url, headers, limit_bytes=_ANSWER_LIMIT_BYTES, anonymous=True)
        if answer.status != 200:
            raise refused(answer)
        try:
            given = _Answer.model_validate_json(answer.content)
        except ValidationError as error:
            raise fetch_failed(f"{shown(url)}: this is no token", url=url, retryable=True) from error
        token = given.token or given.access_token
        if not token or not token.isascii() or not token.isprintable():
            raise fetch_failed(f"{shown(url)}: no token came", url=url, retryable=True)
        return f"Bearer {token}"
