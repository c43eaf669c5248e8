"""What `hotbay call` does, from its files to what came back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from hotbay_sdk.protocol import Method, TypeDeclaration

from hotbay.authoring.arguments import Batch
from hotbay.authoring.files import content_of
from hotbay.authoring.inputs import DEFAULT_REQUEST, read_endpoints, read_parameters, read_requests
from hotbay.authoring.payloads import read_events, read_payload
from hotbay.authoring.runnable import make_runnable
from hotbay.authoring.runner import Called, Target, running
from hotbay.config.data_types import POLLED_PAYLOADS
from hotbay.config.reload import read_content
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.endpoint_rows import endpoint_row
from hotbay.errors import InputError, Problem
from hotbay.process.log import LogSink
from hotbay.scheduling.request import InferenceRequest

__all__ = ["CallOptions", "call_command"]


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


def call_command(options: CallOptions, work: Path, log: list[str]) -> Called:
    """Run the call. What it makes lies below `work`; `log` gets the lines of the plugin's log, also when it fails.

    Raises `HostError`.
    """
    return anyio.run(partial(_call, options, work, log), backend_options={"use_uvloop": True})


async def _call(options: CallOptions, work: Path, log: list[str]) -> Called:
    text, file = content_of(options.requests, DEFAULT_REQUEST)
    requests = read_requests(text, file=file, headers=options.headers or {})
    text, file = content_of(options.parameters, "{}")
    parameters = read_parameters(text, file=file)
    runnable = await make_runnable(options.package, work, type_name=options.type_name, wheels=options.wheels)
    sink = LogSink(f"{runnable.plugin_id}#1")
    try:
        async with running(runnable, options.type_name, parameters, work, sink) as target:
            point = target.point(options.point)
            if point == "extract":
                return await target.extract(_extracts(options, target.declaration), repeat=options.repeat)
            batch = _batch(options, target, point, requests)
            return await target.call(
                point, batch, picks=options.picks, profiles=options.profiles, repeat=options.repeat
            )
    finally:
        log.extend(line.text for line in sink.lines())


def _extracts(options: CallOptions, declaration: TypeDeclaration) -> Sequence[tuple[Method, Sequence[object]]]:
    """A call for the payload, or one for each event."""
    declared, path = declaration.data, options.payload
    if path is None:
        hint = "Give --payload FILE: what a source brings, such as a metrics page."
        message = f"{declaration.type} is called with a payload of {declared.payload}"
        raise InputError([Problem("CONFIG_INVALID", message, hint=hint)])
    content = read_content(path)
    if declared.payload in POLLED_PAYLOADS and content.data is not None:
        endpoint = endpoint_row(EndpointMetadata("default/a", "a", "127.0.0.1", 8000))
        return [(Method.POLL_EXTRACT, [endpoint, read_payload(content.data, declared, file=str(path))])]
    events = read_events(content.text(hint="check its name"), declared, file=str(path))
    return [(Method.EVENT_EXTRACT, [number, event]) for number, event in enumerate(events, 1)]


def _batch(options: CallOptions, target: Target, point: str, requests: tuple[InferenceRequest, ...]) -> Batch:
    declaration = target.declaration
    if options.endpoints is None and point != "profile_handler":
        hint = "Give --endpoints FILE, with lines such as `default/a: {waiting: 3, kv_usage: 0.5}`."
        raise InputError([Problem("CONFIG_INVALID", f"{declaration.type} is called with endpoints", hint=hint)])
    text, file = content_of(options.endpoints, "default/a: {}")
    endpoints = read_endpoints(text, file=file, data=declaration.consumes)
    unknown = sorted((options.candidates or frozenset()) - {row.id for row in endpoints})
    if unknown:
        hint = f"Endpoints are {', '.join(row.id for row in endpoints)}."
        raise InputError([Problem("CONFIG_INVALID", f"--candidate {unknown[0]} is no endpoint", hint=hint)])
    return Batch(declaration, target.block_tokens, endpoints, requests, options.candidates)
