"""One instance of a package: its process, the handshake up to READY, configuration, retirement.

An instance only goes forward; a restart is a new one with a new generation. Every wait has a deadline,
and whatever ends the wait, the process is gone before the error is raised.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
from hotbay_sdk.protocol import (
    PROTOCOL_VERSION,
    Armed,
    ErrorCode,
    FrameType,
    Hello,
    MalformedMessageError,
    Method,
    Ready,
    Value,
    Welcome,
)

from hotbay.errors import HostError, PackageError, PluginFault
from hotbay.process.child import Child, Exit
from hotbay.process.launch import LaunchSpec
from hotbay.process.log import LogSink
from hotbay.rpc.client import PluginClient
from hotbay.rpc.leases import Generation, Origin

logger = logging.getLogger(__name__)

EXIT_NOTICE_S: Final = 1.0
"""How long to wait for the exit status of a process whose control link ended, to name it in the error."""


@dataclass(frozen=True, slots=True)
class RefSpec:
    """A ref to create inside a process."""

    name: str
    type: str
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Deadlines of the start, in seconds, and what WELCOME carries."""

    configure_timeout_s: float = 30.0
    log_level: str = "info"
    seed: int = 0


class Instance:
    """A started process. Make one with `Instance.start`; `generation` exists once it is READY."""

    def __init__(self, child: Child, label: str, spec: LaunchSpec, on_end: Callable[["Instance"], None]) -> None:
        self.child = child
        self.label = label
        self.spec = spec
        self.generation: Generation | None = None
        self.ended = anyio.Event()
        self.fault: HostError | None = None
        self.asked_to_stop = False
        self._on_end = on_end
        self._next_handle = 1
        self._link_lost = anyio.Event()
        self.client = PluginClient(child, label=label, on_lost=self._on_lost)

    @classmethod
    def launch(cls, spec: LaunchSpec, log: LogSink, on_end: Callable[["Instance"], None]) -> "Instance":
        """Start the process. Raises `HostError` START_FAILED. `on_end` is called once when it is gone."""
        return cls(Child.start(spec, log), spec.label, spec, on_end)

    async def watch(self) -> None:
        """Run beside the instance: ends the links when the process exits, stops it when a link breaks."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._stop_when_lost)
            exit_status = await self.child.wait()
            group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            if self.fault is None:
                self.fault = crashed(self.label, exit_status)
            self.client.close(self.fault)
            self.child.close()
            self.ended.set()
            self._on_end(self)

    async def _stop_when_lost(self) -> None:
        await self._link_lost.wait()
        if self.fault is not None:
            self.client.close(self.fault)
        else:
            with anyio.move_on_after(EXIT_NOTICE_S):
                await self.child.wait()
                return
        await self.child.stop(self.spec.grace_s)

    def _on_lost(self, fault: HostError) -> None:
        # A process that broke the protocol or said why it cannot start has named its fault; a mere end of
        # the link is told better by the exit status.
        if fault.code != ErrorCode.CRASHED:
            self.fault = fault
        self._link_lost.set()

    async def handshake(self, origin: Origin, number: int, types: Sequence[str], options: StartOptions) -> Generation:
        """ARMED, GO, HELLO, WELCOME, READY. Raises `HostError`; the process is then gone."""
        try:
            return await self._handshake(origin, number, types, options)
        except HostError as error:
            await self._fail_start(error)
            raise self._start_error(error) from error
        except MalformedMessageError as error:
            fault = PluginFault("PROTOCOL_VIOLATION", f"{self.label}: {error}")
            await self._fail_start(fault)
            raise fault from error

    async def _handshake(self, origin: Origin, number: int, types: Sequence[str], options: StartOptions) -> Generation:
        spec = self.spec
        Armed.from_wire(await self._expect(FrameType.ARMED, spec.arm_timeout_s, ErrorCode.START_FAILED))
        self.client.send_handshake(FrameType.GO, {})
        hello = Hello.from_wire(await self._expect(FrameType.HELLO, spec.hello_timeout_s, ErrorCode.HELLO_TIMEOUT))
        low, high = hello.protocol
        if not low <= PROTOCOL_VERSION <= high:
            raise PluginFault(
                "PROTOCOL_VERSION",
                f"{self.label} speaks protocol {low} to {high}, this host speaks {PROTOCOL_VERSION}",
                hint="pack the plugin with an SDK that speaks the host's version",
            )
        welcome = Welcome(PROTOCOL_VERSION, number, options.seed, options.log_level)
        self.client.send_handshake(FrameType.WELCOME, welcome.to_wire())
        ready = Ready.from_wire(await self._expect(FrameType.READY, spec.ready_timeout_s, ErrorCode.READY_TIMEOUT))
        found = sorted(t.type for t in ready.types)
        if found != sorted(types):
            raise PackageError(
                "INVALID_PACKAGE",
                f"{self.label} provides {', '.join(found) or 'no types'}, its manifest says {', '.join(sorted(types))}",
                hint="make [tool.hotbay] types and the plugin's registered types equal, and pack again",
            )
        declarations = {t.type: t for t in ready.types}
        self.generation = Generation(number, origin, self.client, declarations, self.child.pid)
        return self.generation

    async def _expect(self, frame_type: FrameType, timeout_s: float, code: ErrorCode) -> Value:
        with anyio.move_on_after(timeout_s):
            return await self.client.handshake(frame_type)
        raise PluginFault(
            str(code),
            f"{self.label} sent no {frame_type.name} within {timeout_s:g} s",
            hint="see the plugin's log; code at import time and in constructors must not block",
        )

    def _start_error(self, error: HostError) -> HostError:
        """The start's error, with the exit status and the end of the log where the process just went."""
        exit_status = self.child.exit
        if error.code == ErrorCode.PLUGIN_ERROR:
            return PluginFault(
                "START_FAILED",
                f"{error.message}, raised while its code was imported",
                hint="the traceback is in the plugin's log",
                details=error.details,
            )
        if error.code != ErrorCode.CRASHED or exit_status is None:
            return error
        return PluginFault(
            "START_FAILED",
            f"{self.label} ended before it was READY: {exit_status}",
            hint=f"the end of its log: {exit_status.stderr_tail[-400:] or '(empty)'}",
            details={"exit": exit_status.code, "signal": exit_status.signal, "stderr": exit_status.stderr_tail},
        )

    async def _fail_start(self, error: HostError) -> None:
        self.asked_to_stop = True
        if error.code == ErrorCode.CRASHED:
            with anyio.move_on_after(EXIT_NOTICE_S):
                await self.child.wait()
        await self.kill()

    async def configure(self, create: Sequence[RefSpec], drop: Sequence[int], options: StartOptions) -> None:
        """Create refs inside the process, all or none. Raises `HostError` naming the ref, the field and the reason."""
        generation = self.generation
        assert generation is not None, "configure follows READY"
        handles = {ref.name: self._next_handle + index for index, ref in enumerate(create)}
        body = {
            "create": [
                {
                    "handle": [generation.number, handles[ref.name]],
                    "name": ref.name,
                    "type": ref.type,
                    "parameters": ref.parameters,
                }
                for ref in create
            ],
            "drop": [[generation.number, n] for n in drop],
        }
        answer = await self.client.control_call(Method.CONFIGURE, [body], deadline_s=options.configure_timeout_s)
        instances, errors = _configured(answer)
        if errors:
            raise PluginFault(
                "CONFIG_INVALID",
                f"{self.label}: " + "; ".join(_ref_error(handles, e) for e in errors),
                hint="correct the plugin's parameters in the scheduling configuration",
            )
        self._next_handle += len(create)
        for ref in create:
            generation.handles[ref.name] = handles[ref.name]
            facts = instances.get(str(handles[ref.name]))
            tokens = facts.get("block_tokens") if isinstance(facts, dict) else None
            generation.block_tokens.pop(ref.name, None)
            if type(tokens) is int and 0 < tokens <= MAX_BLOCK_TOKENS:
                generation.block_tokens[ref.name] = tokens

    async def retire(self, drain_s: float) -> None:
        """Wait for the leases to end, at most `drain_s`, tell the process to go, and see to it. Idempotent."""
        self.asked_to_stop = True
        with anyio.CancelScope(shield=True):
            if self.generation is not None and not self.ended.is_set():
                drained = anyio.Event()
                self.generation.on_drained(drained.set)
                with anyio.move_on_after(drain_s):
                    await drained.wait()
                if self.generation.leases:
                    logger.warning(
                        "drain_timeout", extra={"plugin": self.label, "leases": self.generation.leases}
                    )
            if not self.ended.is_set() and self.client.fault is None:
                self.client.goaway("retired")
                with anyio.move_on_after(self.spec.grace_s):
                    await self.ended.wait()
            await self.kill()

    async def kill(self) -> None:
        """SIGTERM, grace, SIGKILL of the group; returns when the process is gone."""
        self.asked_to_stop = True
        with anyio.CancelScope(shield=True):
            if not self.ended.is_set():
                await self.child.stop(self.spec.grace_s)
                with anyio.move_on_after(EXIT_NOTICE_S):
                    await self.ended.wait()


MAX_BLOCK_TOKENS: Final = 65536
"""Largest hash block an instance may ask for: 256 KiB of prompt."""


def crashed(label: str, exit_status: Exit) -> PluginFault:
    """The fault of a process that went while it was in service."""
    return PluginFault(
        "CRASHED",
        f"{label} ended: {exit_status}",
        hint=f"the end of its log: {exit_status.stderr_tail[-400:] or '(empty)'}",
        details={
            "exit": exit_status.code,
            "signal": exit_status.signal,
            "stderr": exit_status.stderr_tail,
        },
    )


def _configured(answer: Value) -> tuple[dict[str, Value], list[Value]]:
    if not isinstance(answer, dict):
        raise PluginFault("BAD_RESULT", "configure: expected {instances, errors}")
    instances, errors = answer.get("instances", {}), answer.get("errors", [])
    if not isinstance(instances, dict) or not isinstance(errors, list):
        raise PluginFault("BAD_RESULT", "configure: expected {instances, errors}")
    return instances, errors


def _ref_error(handles: Mapping[str, int], error: Value) -> str:
    """One per-handle error as text. Everything in it is the plugin's word, so lengths are cut."""
    if not isinstance(error, dict):
        return "an error without a place"
    handle = error.get("handle")
    number = handle[1] if isinstance(handle, list) and len(handle) == 2 else None
    name = next((ref for ref, n in handles.items() if n == number), "?")
    path = str(error.get("path", ""))[:200]
    message = str(error.get("message", ""))[:600]
    return f"plugins '{name}': parameters{'.' if path else ''}{path}: {message}"

