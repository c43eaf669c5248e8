"""What a simulated server answers at once: every route but those that the engine works for. No IO.

`answer` gives the answer to a request, or None for a completion, which is answered as the engine goes on.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

import orjson

from hotbay.sim.answers import VERSION, models_body
from hotbay.sim.asking import read_json
from hotbay.sim.config import SimConfig
from hotbay.sim.failures import Fault, bad_request, unknown_model
from hotbay.sim.page import CONTENT_TYPE
from hotbay.sim.prompts import prompts_of, token_count, token_ids

__all__ = ["COMPLETIONS", "Answer", "Server", "answer"]

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"

COMPLETIONS: Final = {b"/v1/completions": False, b"/v1/chat/completions": True}
"""Paths that the engine works for, and whether they are chats."""


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    content_type: str
    body: bytes

    @classmethod
    def of_fault(cls, fault: Fault) -> "Answer":
        return cls(fault.status, _JSON, fault.body())


class Server(Protocol):
    """What the routes show and change."""

    config: SimConfig
    adapters: dict[str, str]
    created: int

    @property
    def load(self) -> int:
        """Requests that are being answered."""
        ...

    def metrics(self) -> bytes: ...

    def forget_adapter(self, name: str, /) -> None: ...


def answer(server: Server, method: bytes, path: bytes, body: bytes) -> Answer | None:
    """The answer to a request that needs no engine; None for a completion."""
    if path in COMPLETIONS:
        return None if method == b"POST" else _refused(405, "Method Not Allowed")
    methods = _ROUTES.get(path)
    if methods is None:
        return _refused(404, "Not Found")
    route = methods.get(method)
    return _refused(405, "Method Not Allowed") if route is None else route(server, body)


def _refused(status: int, phrase: str) -> Answer:
    return Answer.of_fault(Fault(status, phrase, phrase))


def _nothing(server: Server, body: bytes) -> Answer:
    return Answer(200, _JSON, b"")


def _version(server: Server, body: bytes) -> Answer:
    return Answer(200, _JSON, orjson.dumps({"version": VERSION}))


def _load(server: Server, body: bytes) -> Answer:
    return Answer(200, _JSON, orjson.dumps({"server_load": server.load}))


def _models(server: Server, body: bytes) -> Answer:
    return Answer(200, _JSON, models_body(server.config, server.adapters, server.created))


def _metrics(server: Server, body: bytes) -> Answer:
    return Answer(200, CONTENT_TYPE, server.metrics())


def _tokenize(server: Server, body: bytes) -> Answer:
    payload = read_json(body)
    if isinstance(payload, Fault):
        return Answer.of_fault(payload)
    model = payload.get("model")
    if model is not None and model not in server.config.names and model not in server.adapters:
        return Answer.of_fault(unknown_model(str(model)))
    if not isinstance(payload.get("prompt"), str) and not isinstance(payload.get("messages"), list):
        return Answer.of_fault(bad_request("`prompt` has to be a text, or `messages` a list.", "prompt"))
    (prompt,) = prompts_of(payload)
    told = {
        "count": token_count(prompt),
        "max_model_len": server.config.limits.max_model_len,
        "tokens": token_ids(prompt),
        "token_strs": None,
    }
    return Answer(200, _JSON, orjson.dumps(told))


def _load_adapter(server: Server, body: bytes) -> Answer:
    payload = read_json(body)
    if isinstance(payload, Fault):
        return Answer.of_fault(payload)
    name, path = payload.get("lora_name"), payload.get("lora_path")
    if not isinstance(name, str) or not isinstance(path, str) or not name or not path:
        return Answer.of_fault(bad_request("Both 'lora_name' and 'lora_path' must be provided."))
    if name in server.adapters and payload.get("load_inplace") is not True:
        message = f"The lora adapter '{name}' has already been loaded."
        return Answer.of_fault(Fault(400, message, "InvalidUserInput"))
    server.adapters[name] = path
    return Answer(200, _TEXT, f"Success: LoRA adapter '{name}' added successfully.".encode())


def _unload_adapter(server: Server, body: bytes) -> Answer:
    payload = read_json(body)
    if isinstance(payload, Fault):
        return Answer.of_fault(payload)
    name = payload.get("lora_name")
    if not isinstance(name, str) or not name:
        return Answer.of_fault(bad_request("'lora_name' needs to be provided to unload a LoRA adapter."))
    if name not in server.adapters:
        return Answer.of_fault(Fault(404, f"The lora adapter '{name}' cannot be found.", "NotFoundError"))
    server.forget_adapter(name)
    return Answer(200, _TEXT, f"Success: LoRA adapter '{name}' removed successfully.".encode())


_Route = Callable[[Server, bytes], Answer]

_ROUTES: Final[Mapping[bytes, Mapping[bytes, _Route]]] = {
    b"/health": {b"GET": _nothing},
    b"/load": {b"GET": _load},
    b"/metrics": {b"GET": _metrics},
    b"/ping": {b"GET": _nothing, b"POST": _nothing},
    b"/tokenize": {b"POST": _tokenize},
    b"/v1/load_lora_adapter": {b"POST": _load_adapter},
    b"/v1/models": {b"GET": _models},
    b"/v1/unload_lora_adapter": {b"POST": _unload_adapter},
    b"/version": {b"GET": _version},
}
