"""One instance of a package: its process, the handshake up to READY, configuration, retirement.

An instance only goes forward; a restart is a new one with a new generation. Every wait has a deadline,
and whatever ends the wait, the process is gone before the error is raised.
"""

import logging
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from hotbay.rollout.facts import plugin_of
from hotbay.rollout.lifecycle import InstanceEvent, InstanceState, advance
from hotbay.rollout.refs import CreatedRef, RefSpec, configured, instance_facts, ref_error
from hotbay.rpc.client import PluginClient
from hotbay.rpc.host_calls import HostCall
from hotbay.rpc.leases import Generation, Origin

logger = logging.getLogger(__name__)

EXIT_NOTICE_S: Final = 1.0
"""How long to wait for the exit status of a process whose control link ended, to name it in the error."""
FAILED_START_EXIT_S: Final = 5.0
"""The same for one that has said why it cannot start: on a busy machine an interpreter takes seconds to end, and nobody
waits for this one."""


Lend = Callable[[Callable[[str], None]], Callable[[HostCall], None]]


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Deadlines of the start, in seconds, what WELCOME carries, and whether it gives way to what serves meanwhile."""

    configure_timeout_s: float = 30.0
    log_level: str = "info"
    seed: int = 0
    state_timeout_s: float = 10.0
    state_limit_bytes: int = 64 << 20
    gives_way: bool = True


class Instance:
    """A started process. Make one with `Instance.start`; `generation` exists once it is READY."""

    def __init__(
        self, child: Child, label: str, spec: LaunchSpec, changed: Callable[["Instance"], None], lend: Lend | None
    ) -> None:
        self.child = child
        self.label = label
        self.spec = spec
        self.state = advance(InstanceState.NEW, InstanceEvent.LAUNCHED)
        self.cold: dict[str, str] = {}
        """Refs that began without their predecessor's state, and why."""
        self.generation: Generation | None = None
        self.ended = anyio.Event()
        self.fault: HostError | None = None
        self.killed_by: int | None = None
        """Signal that ended a process which went by itself; never a plugin's word."""
        self.asked_to_stop = False
        self._changed = changed
        self._next_handle = 1
        self._created: set[int] = set()
        self._installed: dict[str, CreatedRef] = {}
        self._link_lost = anyio.Event()
        self._drained: anyio.Event | None = None
        self.wants_replacement = False
        self.client = PluginClient(
            child,
            label=label,
            on_lost=self._on_lost,
            on_goaway=self._on_goaway,
            on_host_call=None if lend is None else lend(self._on_goaway),
            ask_stacks=partial(child.signal, signal.SIGQUIT),
        )

    @classmethod
    def launch(
        cls, spec: LaunchSpec, log: LogSink, changed: Callable[["Instance"], None], lend: Lend | None = None
    ) -> "Instance":
        """Start the process. Raises `HostError` START_FAILED.

        `changed` is called when it is gone, and when it asks to be replaced. `lend` makes what answers its calls to
        the host, given what takes its wish to be replaced; without it the host grants none.
        """
        return cls(Child.start(spec, log), spec.label, spec, changed, lend)

    @property
    def answers(self) -> bool:
        """Whether it is READY and neither lost nor gone."""
        return self.generation is not None and self.client.fault is None and not self.ended.is_set()

    async def watch(self) -> None:
        """Run beside the instance until its process is gone: ends the links, stops it when a link breaks.

        Cancelled, it ends the process first.
        """
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._stop_when_lost)
                await self.child.wait()
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                self._end(await self.child.stop(self.spec.grace_s))

    def _end(self, exit_status: Exit | None) -> None:
        if self.fault is None:
            self.fault = crashed(self.label, exit_status)
            self.killed_by = exit_status.signal if exit_status is not None else None
        self.client.close(self.fault)
        self.child.close()
        self._advance(InstanceEvent.EXITED)
        self.ended.set()
        self._changed(self)

    def _advance(self, event: InstanceEvent) -> None:
        self.state = advance(self.state, event)

    async def _stop_when_lost(self) -> None:
        await self._link_lost.wait()
        fails_to_start = (
            self.fault is not None and self.fault.code == ErrorCode.PLUGIN_ERROR and self.generation is None
        )
        if self.fault is None or fails_to_start:
            if await self._ends_by_itself(FAILED_START_EXIT_S if fails_to_start else EXIT_NOTICE_S):
                return
            self.fault = self.fault or self.client.fault
        assert self.fault is not None, "a lost link has a fault"
        self.client.close(self.fault)
        await self.child.stop(self.spec.grace_s)

    async def _ends_by_itself(self, within_s: float) -> bool:
        """Whether the process ends without a signal of ours, than which its own exit status tells more."""
        with anyio.move_on_after(within_s):
            await self.child.wait()
            return True
        return False

    def _on_lost(self, fault: HostError) -> None:
        # A process that broke the protocol or said why it cannot start has named its fault; a mere end of
        # the link is told better by the exit status.
        if fault.code != ErrorCode.CRASHED:
            self.fault = fault
            logger.warning("instance_lost plugin=%s code=%s: %s", self.label, fault.code, fault.message)
        self._link_lost.set()

    def _on_goaway(self, reason: str) -> None:
        """The plugin asks to be replaced; it goes on answering until it is."""
        logger.info("plugin_goaway plugin=%s reason=%r", self.label, reason[:200], extra={"plugin": self.label})
        self.wants_replacement = True
        self._changed(self)

    async def handshake(
        self,
        origin: Origin,
        number: int,
        types: Sequence[str],
        options: StartOptions,
        inherit: Callable[[], Awaitable[bytes]] | None = None,
    ) -> Generation:
        """ARMED, GO, HELLO, WELCOME, state, READY. Raises `HostError`; the process is then gone.

        `inherit` gives a predecessor's state, empty if it has none; what it raises, and what goes wrong with the state,
        means a cold start.
        """
        try:
            return await self._handshake(origin, number, types, options, inherit)
        except HostError as error:
            await self._fail_start(error)
            raise self._start_error(error) from error
        except MalformedMessageError as error:
            fault = PluginFault("PROTOCOL_VIOLATION", f"{self.label}: {error}")
            await self._fail_start(fault)
            raise fault from error

    async def _handshake(
        self,
        origin: Origin,
        number: int,
        types: Sequence[str],
        options: StartOptions,
        inherit: Callable[[], Awaitable[bytes]] | None,
    ) -> Generation:
        spec = self.spec
        Armed.from_wire(await self._expect(FrameType.ARMED, spec.arm_timeout_s, ErrorCode.START_FAILED))
        self.client.send_handshake(FrameType.GO, {})
        hello = Hello.from_wire(await self._expect(FrameType.HELLO, spec.hello_timeout_s, ErrorCode.HELLO_TIMEOUT))
        low, high = hello.protocol
        if not low <= PROTOCOL_VERSION <= high:
            raise PluginFault(
                "PROTOCOL_VERSION",
                f"{self.label} speaks protocol {f'{low} to {high}' if high else 'of no version'}, "
                f"this host speaks {PROTOCOL_VERSION}",
                hint="pack the plugin with an SDK that speaks the host's version, under a new rev",
            )
        state = await self._inherited(inherit, options)
        welcome = Welcome(PROTOCOL_VERSION, number, options.seed, options.log_level, state=bool(state))
        self.client.send_handshake(FrameType.WELCOME, welcome.to_wire())
        if state:
            await self._send_state(state, options)
        ready = Ready.from_wire(await self._expect(FrameType.READY, spec.ready_timeout_s, ErrorCode.READY_TIMEOUT))
        found = sorted(t.type for t in ready.types)
        if found != sorted(types):
            raise PackageError(
                "INVALID_PACKAGE",
                f"{self.label} provides {', '.join(found)[:MAX_NAMES_CHARS] or 'no types'}, "
                f"its manifest says {', '.join(sorted(types))[:MAX_NAMES_CHARS]}",
                hint="make [tool.hotbay] types and the plugin's registered types equal, and pack again",
            )
        self._advance(InstanceEvent.PLUGIN_READY)
        declarations = {t.type: t for t in ready.types}
        features = frozenset(hello.features)
        self.generation = Generation(number, origin, self.client, declarations, self.child.pid, features=features)
        return self.generation

    async def _inherited(self, inherit: Callable[[], Awaitable[bytes]] | None, options: StartOptions) -> bytes:
        if inherit is None:
            return b""
        try:
            with anyio.move_on_after(options.state_timeout_s):
                return await inherit()
        except HostError as error:
            self._starts_cold(f"{error.code}: {error.message}")
            return b""
        self._starts_cold(f"its predecessor gave no state within {options.state_timeout_s:g} s")
        return b""

    async def _send_state(self, state: bytes, options: StartOptions) -> None:
        try:
            await self.client.send_state(state, options.state_timeout_s)
        except HostError as error:
            if self.client.fault is not None:
                raise
            self._starts_cold(f"{error.code}: {error.message}")

    def _starts_cold(self, why: str) -> None:
        self.cold["*"] = why[:MAX_NAMES_CHARS]
        logger.warning("starts_cold plugin=%s: %s", self.label, self.cold["*"])

    async def _expect(self, frame_type: FrameType, timeout_s: float, code: ErrorCode) -> Value:
        with anyio.move_on_after(timeout_s):
            return await self.client.handshake(frame_type)
        raise PluginFault(
            str(code),
            f"{self.label} sent no {frame_type.name} within {timeout_s:g} s",
            hint=f"see `hotbay logs {self._plugin_id}`; code at import time and in constructors must not block",
        )

    @property
    def _plugin_id(self) -> str:
        return plugin_of(self.label.partition("#")[0])

    def _start_error(self, error: HostError) -> HostError:
        """The start's error, with the exit status and the end of the log where the process just went."""
        exit_status = self.child.exit
        if error.code == ErrorCode.PLUGIN_ERROR:
            return PluginFault(
                "START_FAILED",
                f"{error.message}, raised while its code was imported",
                hint=f"`hotbay logs {self._plugin_id}` has the traceback",
                details={**error.details, **self.child.exit_details()},
            )
        if error.code != ErrorCode.CRASHED or exit_status is None:
            return error
        return PluginFault(
            "START_FAILED",
            f"{self.label} ended before it was READY: {exit_status}",
            hint=f"see `hotbay logs {self._plugin_id}`; its end: {exit_status.stderr_tail[-400:] or '(empty)'}",
            details=self.child.exit_details(),
        )

    async def _fail_start(self, error: HostError) -> None:
        self.asked_to_stop = True
        if error.code in (ErrorCode.CRASHED, ErrorCode.PLUGIN_ERROR):
            await self._ends_by_itself(FAILED_START_EXIT_S)
        await self.kill()

    def missing(self, refs: Sequence[RefSpec]) -> list[RefSpec]:
        """Those of `refs` that are not in use here, or with other parameters that need no other process."""
        return [ref for ref in refs if self._is_missing(ref)]

    def _is_missing(self, ref: RefSpec) -> bool:
        installed = self._installed.get(ref.name)
        if installed is None or self.generation is None:
            return True
        declared = self.generation.types.get(ref.type)
        stays = declared is not None and declared.needs_restart and installed.spec.type == ref.type
        return installed.spec != ref and not stays

    async def create(self, refs: Sequence[RefSpec], options: StartOptions) -> list[CreatedRef]:
        """Create refs inside the process, all or none. Raises `HostError` naming the ref, the field and the reason.

        Nothing uses them before `install`.
        """
        generation = self.generation
        assert generation is not None, "configure follows READY"
        handles = {self._next_handle + index: ref for index, ref in enumerate(refs)}
        self._next_handle += len(refs)
        create = [
            {"handle": [generation.number, n], "name": ref.name, "type": ref.type, "parameters": ref.parameters}
            for n, ref in handles.items()
        ]
        try:
            answer = await self._configure({"create": create, "drop": []}, options)
        except PluginFault as error:
            if error.code != ErrorCode.DEADLINE_EXCEEDED:
                raise
            raise PluginFault(
                "READY_TIMEOUT",
                f"{self.label} did not make {', '.join(ref.name for ref in refs)} within {options.configure_timeout_s:g} s",
                hint="see the plugin's log; a constructor must not block",
            ) from error
        instances, errors = configured(answer)
        if errors:
            raise PluginFault(
                "CONFIG_INVALID",
                "; ".join(ref_error(handles, e) for e in errors),
                hint="correct the plugin's parameters in the scheduling configuration; "
                "if its code raised, the traceback is in the plugin's log",
                details={"plugin": self.label},
            )
        # Made there, whatever is told of them: what is refused is dropped like any other.
        self._created.update(handles)
        facts = {n: instance_facts(ref, instances.get(str(n))) for n, ref in handles.items()}
        self._advance(InstanceEvent.CONFIGURED)
        self._note_cold(handles, answer)
        return [CreatedRef(ref, n, facts[n].block_tokens, facts[n]) for n, ref in handles.items()]

    def _note_cold(self, refs: Mapping[int, RefSpec], answer: Value) -> None:
        outcomes = answer.get("state") if isinstance(answer, dict) else None
        for handle, said in outcomes.items() if isinstance(outcomes, dict) else ():
            ref = refs.get(int(handle)) if isinstance(handle, str) and handle.isdecimal() else None
            if ref is not None and isinstance(said, str) and said != "imported":
                self.cold[ref.name] = said[:MAX_NAMES_CHARS]
                logger.warning("starts_cold plugin=%s ref=%s: %s", self.label, ref.name, self.cold[ref.name])

    @property
    def has_state(self) -> bool:
        """Whether a type of this process can give its state to a successor."""
        generation = self.generation
        return generation is not None and any(t.state_versions for t in generation.types.values())

    async def export_state(self, options: StartOptions) -> bytes:
        """What this process hands to its successor. Raises `HostError`."""
        return await self.client.export_state(
            budget_bytes=options.state_limit_bytes, deadline_s=options.state_timeout_s
        )

    @property
    def refs(self) -> tuple[CreatedRef, ...]:
        """The refs that plans use."""
        return tuple(self._installed.values())

    def install(self, refs: Sequence[CreatedRef]) -> Mapping[str, CreatedRef]:
        """Let plans that are compiled from now on use these refs; return what was in use before."""
        before = dict(self._installed)
        self._install({**before, **{ref.spec.name: ref for ref in refs}})
        return before

    def restore(self, before: Mapping[str, CreatedRef]) -> None:
        """Take an `install` back."""
        self._install(before)

    def _install(self, refs: Mapping[str, CreatedRef]) -> None:
        generation = self.generation
        assert generation is not None, "refs are made in a READY process"
        self._installed = dict(refs)
        generation.handles.clear()
        generation.handles.update({name: ref.handle for name, ref in refs.items()})
        generation.block_tokens.clear()
        tokens = {name: ref.block_tokens for name, ref in refs.items()}
        generation.block_tokens.update({name: count for name, count in tokens.items() if count is not None})
        generation.facts.clear()
        generation.facts.update({name: ref.facts for name, ref in refs.items()})

    def unused(self, wanted: Sequence[RefSpec]) -> list[int]:
        """Handles that no plan compiled from now on names, once only `wanted` refs are. Forgets those refs."""
        names = {ref.name for ref in wanted}
        self._install({name: ref for name, ref in self._installed.items() if name in names})
        return sorted(self._created - {ref.handle for ref in self._installed.values()})

    async def drop(self, handles: Sequence[int], options: StartOptions) -> None:
        """Drop refs inside the process. Raises `HostError`."""
        assert self.generation is not None, "refs are made in a READY process"
        used = {ref.handle for ref in self._installed.values()}
        there = [n for n in handles if n in self._created and n not in used]
        self._created.difference_update(there)
        if there and self.answers:
            await self._configure({"create": [], "drop": [[self.generation.number, n] for n in there]}, options)

    async def _configure(self, body: Mapping[str, object], options: StartOptions) -> Value:
        return await self.client.control_call(Method.CONFIGURE, [body], deadline_s=options.configure_timeout_s)

    async def retire(self, drain_s: float) -> None:
        """Wait for the leases to end, at most `drain_s`, tell the process to go, and see to it. Idempotent."""
        self.asked_to_stop = True
        self._advance(InstanceEvent.RETIRE)
        with anyio.CancelScope(shield=True):
            if self.generation is not None and not self.ended.is_set():
                with anyio.move_on_after(drain_s):
                    await self._leases_end(self.generation)
                if self.generation.leases:
                    logger.warning("drain_timeout", extra={"plugin": self.label, "leases": self.generation.leases})
            if not self.ended.is_set() and self.client.fault is None:
                self.client.goaway("retired")
                with anyio.move_on_after(self.spec.grace_s):
                    await self.ended.wait()
            await self.kill()

    async def _leases_end(self, generation: Generation) -> None:
        if self._drained is None:
            self._drained = anyio.Event()
            generation.on_drained(self._drained.set)
        await self._drained.wait()

    async def kill(self) -> None:
        """SIGTERM, grace, SIGKILL of the group; returns when the process is gone."""
        self.asked_to_stop = True
        self._advance(InstanceEvent.TERMINATE)
        with anyio.CancelScope(shield=True):
            if not self.ended.is_set():
                await self.child.stop(self.spec.grace_s)
                with anyio.move_on_after(EXIT_NOTICE_S):
                    await self.ended.wait()


MAX_NAMES_CHARS: Final = 600
"""Of names that a plugin gives, in one error."""


def crashed(label: str, exit_status: Exit | None) -> PluginFault:
    """The fault of a process that went by itself. None: the kernel does not let it go."""
    if exit_status is None:
        return PluginFault("CRASHED", f"{label} was told to stop and is still there after SIGKILL")
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
