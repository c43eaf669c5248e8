"""What `hotbay call` does, from its files to what came back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from hotbay.authoring.arguments import Batch
from hotbay.authoring.asking import ASKED_POINTS, Asked, asked_of
from hotbay.authoring.files import content_of
from hotbay.authoring.inputs import DEFAULT_REQUEST, read_endpoints, read_parameters, read_requests
from hotbay.authoring.runnable import make_runnable
from hotbay.authoring.runner import RUN_POINTS, Called, Target, running
from hotbay.authoring.telling import Bound, Ran, Told, tell
from hotbay.config.reload import read_content
from hotbay.errors import InputError, Problem
from hotbay.process.log import LogSink
from hotbay.scheduling.fields import instance_needs
from hotbay.scheduling.request import InferenceRequest

__all__ = ["CallOptions", "call_command"]

WITHOUT_ENDPOINTS: Final = frozenset(
    {"profile_handler", "request_headers", "parse", "response_headers", "response_body", "dump_state"}
)
"""Points that are called without endpoints, or that one endpoint does for."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The command line of `hotbay call`. Files that are None have defaults; `candidates` None means all endpoints."""

    type_name: str
    package: Path
    requests: Path | None = None
    headers: Mapping[str, str] | None = None
    endpoints: Path | None = None
    candidates: frozenset[str] | None = None
    parameters: Path | None = None
    point: str | None = None
    picks: int = 1
    profiles: tuple[str, ...] = ("default",)
    repeat: int = 1
    wheels: Path | None = None
    payload: Path | None = None
    bound: Bound = field(default_factory=Bound)


def call_command(
    options: CallOptions, work: Path, log: list[str], *, told: Callable[[str, Told], None] = lambda *_: None
) -> Called | Ran:
    """Run the call. What it makes lies below `work`; `log` gets the lines of the plugin's log, also when it fails.

    `told` is given what a discovery or a watch tells, as it comes. Needs the main thread. Raises `HostError`.
    """
    return anyio.run(partial(_call, options, work, log, told), backend_options={"use_uvloop": True})


async def _call(options: CallOptions, work: Path, log: list[str], told: Callable[[str, Told], None]) -> Called | Ran:
    text, file = content_of(options.requests, DEFAULT_REQUEST)
    requests = read_requests(text, file=file, headers=options.headers or {})
    text, file = content_of(options.parameters, "{}")
    parameters = read_parameters(text, file=file)
    runnable = await make_runnable(options.package, work, type_name=options.type_name, wheels=options.wheels)
    sink = LogSink(f"{runnable.plugin_id}#1")
    try:
        async with running(runnable, options.type_name, parameters, work, sink) as target:
            point = target.point(options.point)
            if point in RUN_POINTS:
                return await tell(target, point, options.bound, told)
            if point in ASKED_POINTS:
                return await target.ask_each(point, _asked(options, target, point), repeat=options.repeat)
            batch = _batch(options, target, point, requests)
            return await target.call(
                point, batch, picks=options.picks, profiles=options.profiles, repeat=options.repeat
            )
    finally:
        log.extend(line.text for line in sink.lines())


def _asked(options: CallOptions, target: Target, point: str) -> Sequence[Asked]:
    content = None if options.payload is None else read_content(options.payload)
    return asked_of(target.declaration, point, content, file=str(options.payload))


def _batch(options: CallOptions, target: Target, point: str, requests: tuple[InferenceRequest, ...]) -> Batch:
    declaration = target.declaration
    if options.endpoints is None and point not in WITHOUT_ENDPOINTS:
        hint = "Give --endpoints FILE, with lines such as `default/a: {waiting: 3, kv_usage: 0.5}`."
        raise InputError([Problem("CONFIG_INVALID", f"{declaration.type} is called with endpoints", hint=hint)])
    text, file = content_of(options.endpoints, "default/a: {}")
    needed, optional = instance_needs(declaration, target.facts)
    endpoints = read_endpoints(text, file=file, data=(*needed, *optional), kinds=target.kinds)
    unknown = sorted((options.candidates or frozenset()) - {row.id for row in endpoints})
    if unknown:
        hint = f"Endpoints are {', '.join(row.id for row in endpoints)}."
        raise InputError([Problem("CONFIG_INVALID", f"--candidate {unknown[0]} is no endpoint", hint=hint)])
    return Batch(declaration, endpoints, requests, options.candidates, target.kinds, target.facts)
