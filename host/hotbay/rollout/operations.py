"""What an operator can do to plugins while a host runs: each method is one command, answered with a page for JSON.

What the operator decides is a record in the world, written in one transaction: it outlives the host, and routines
follow the world. Only what steers a rollout under way is told to its machine. Every refusal says what to do instead.
"""

import difflib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from hotbay.capabilities import check_grant
from hotbay.errors import CapacityError, HostError, InputError, Problem
from hotbay.process.log import LogLine
from hotbay.rollout.events import EventLog
from hotbay.rollout.facts import history_of, plugin_of, refs_of
from hotbay.rollout.lock_document import lock_changes, locked_now, write_lock
from hotbay.rollout.machine import COMMANDS
from hotbay.rollout.planning import planned_changes, under_pin, versions_passed_over
from hotbay.rollout.routine import Routine
from hotbay.rollout.rows import LIVE, phase_text
from hotbay.rollout.selection import Candidate, Pin
from hotbay.rollout.services import Occurrence
from hotbay.rollout.short_digests import whole_digest
from hotbay.rollout.state import Abort, Approve, Cause, Command, Failure, Forgive, GoTo, Pause, Phase, Promote, Resume
from hotbay.rollout.supervisor import Supervisor
from hotbay.scheduling.binding import Binding, Policy
from hotbay.store.digests import Digest
from hotbay.store.gc_plan import GcPlan
from hotbay.store.world import records
from hotbay.store.world.engine import Change, Delete, Put, WorldView

logger = logging.getLogger(__name__)

__all__ = ["Operations", "Ports"]

Page = Mapping[str, object]

FOLLOW_S: Final = 0.2
"""How often a followed log is looked at: a plugin's lines are kept in a ring that tells nobody."""


async def _nothing() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Ports:
    """What of a host the commands need beside the supervisor.

    `status` is the status page; `lines` are the last lines that a plugin's processes wrote; `collect` removes what
    nothing needs, given what is in use; `bindings` are those of the plan in force; `lock` reads the lock file of the
    configuration, None without one, and raises `InputError`; `waiting` says which changes of the configuration wait to
    be applied, and `apply` applies them; `next_start` names what is in force and acts at the next start only.
    """

    status: Callable[[], Page]
    lines: Callable[[str], Iterable[LogLine]]
    collect: Callable[..., Awaitable[GcPlan]]
    bindings: Callable[[], Sequence[Binding]]
    lock: Callable[[], Sequence[records.Locked] | None] = lambda: None
    waiting: Callable[[], Awaitable[Sequence[str]]] = _nothing
    apply: Callable[[], Awaitable[Sequence[str]]] | None = None
    next_start: Callable[[], Sequence[str]] = tuple


class Operations:
    """See the module. Methods are for the loop's thread; calls may overlap. They raise `HostError` with a hint."""

    def __init__(self, supervisor: Supervisor, events: EventLog, ports: Ports) -> None:
        self._supervisor = supervisor
        self._events = events
        self._ports = ports

    # -- looking ---------------------------------------------------------------------------------

    async def status(self) -> Page:
        """The status page."""
        return self._ports.status()

    async def plan(self) -> Page:
        """What `apply` would change, what is under way, and what is newer and not chosen: `{changes, not_chosen, waiting}`."""
        lock = self._ports.lock()
        waiting = await self._ports.waiting()
        return {
            "changes": planned_changes(self._supervisor, lock),
            "not_chosen": versions_passed_over(self._supervisor, lock),
            "waiting": self._with_lock(waiting, lock),
            **self._next_start(),
        }

    async def history(self, plugin: str) -> Page:
        """What was live, the newest last."""
        name = self._name(plugin)
        entries = sorted(self._history(name), key=lambda entry: entry.number)
        return {"plugin": name, "history": [_history_page(entry) for entry in entries]}

    async def quarantine(self) -> Page:
        """Every digest that is not run."""
        entries = self._view.all(records.Quarantine)
        return {"quarantine": [_quarantine_page(entry) for entry in entries]}

    async def logs(self, plugin: str, lines: int) -> Page:
        """The last lines that the plugin's processes wrote, the newest last."""
        name = self._name(plugin)
        found = list(self._ports.lines(name))[-lines:] if lines > 0 else []
        return {"plugin": name, "lines": [self._line_page(line) for line in found]}

    async def follow(self, plugin: str) -> AsyncIterator[Page]:
        """Lines as they are written, from here on, without end."""
        name = self._name(plugin)
        seen = list(self._ports.lines(name))
        while True:
            await anyio.sleep(FOLLOW_S)
            now = list(self._ports.lines(name))
            # Lines are compared as objects: a ring forgets its oldest, and equal lines are different ones.
            known = {id(line) for line in seen}
            for line in now:
                if id(line) not in known:
                    yield self._line_page(line)
            seen = now

    def _line_page(self, line: LogLine) -> Page:
        services = self._supervisor.services
        return {
            "at_s": round(services.wall() - (services.now() - line.at_s), 3),
            "rev": line.rev,
            "generation": line.generation,
            "pid": line.pid or None,
            "stream": line.stream,
            "line": line.text,
        }

    def events(self) -> AsyncIterator[Page]:
        """What happens from here on, without end."""
        return self._events.listen()

    async def lock(self) -> Page:
        """The lock file that says what is live or was live last of every plugin."""
        rows = self._supervisor.rows
        return write_lock(locked_now(self._view, [row.live.digest for row in rows if row.live is not None]))

    # -- deciding --------------------------------------------------------------------------------

    async def apply(self, who: str) -> Page:
        """Put the lock file and a waiting configuration in force; `{applied, lock, changes}`, `lock` says whether one holds."""
        # First, for it may name another lock file, or none.
        applied = list(await self._ports.apply()) if self._ports.apply is not None else []
        locked = self._ports.lock()
        changes = planned_changes(self._supervisor, locked)
        applied = self._with_lock(applied, locked)
        await self._write(lambda view: lock_changes(view, locked or ()))
        self._tell("applied", "", who)
        count = len(self._view.all(records.Locked))
        held = f"in force, {count} build{'s' * (count != 1)}" if count else "none in force"
        return {"applied": applied, "lock": held, "changes": changes, **self._next_start()}

    def _next_start(self) -> Page:
        names = list(self._ports.next_start())
        return {"at_the_next_start": names} if names else {}

    def _with_lock(self, names: Sequence[str], lock: Sequence[records.Locked] | None) -> list[str]:
        """The names, and that of the lock where the file says something else than what is in force."""
        differs = "lock" not in names and bool(lock_changes(self._view, lock or ()))
        return [*names, *["lock"] * differs]

    async def pin(self, plugin: str, *, rev: int | None = None, digest: str | None = None, who: str) -> Page:
        """Select this revision or digest and nothing else, also below the floor."""
        name = self._name(plugin)
        if (rev is None) == (digest is None):
            raise _refused("CONFIG_INVALID", "a pin names a revision or a digest", "write ID@REV or ID@sha256:…")
        found = self._pinnable(name, rev, digest)
        pin = records.Pin(plugin_of(name), None, Digest(found.digest), who, self._now())
        await self._write(lambda _view: [Put(pin)])
        self._tell("pinned", name, who, rev=found.rev, digest=found.digest)
        return {**_is_pin(name), "plugin": name, "rev": found.rev, "digest": found.digest, "phase": self._phase(name)}

    def _pinnable(self, name: str, rev: int | None, digest: str | None) -> Candidate:
        """What a pin on this revision or digest would run. Raises `InputError` where that is nothing."""
        known = self._find(plugin_of(name), rev, digest)
        wanted = Pin(digest=known.digest) if digest is not None else Pin(rev=rev)
        found, why, hint = under_pin(self._supervisor, name, wanted, known.digest)
        if found is None:
            raise _refused("UNAVAILABLE", f"{name} rev {known.rev} ({known.digest}) would not run: {why}", hint)
        return found

    def _find(self, plugin_id: str, rev: int | None, digest: str | None) -> records.ManifestRef:
        refs = refs_of(self._view, plugin_id)
        if digest is not None:
            digest = whole_digest(digest, [ref.digest for ref in refs])
        found = [ref for ref in refs if ref.rev == rev or ref.digest == digest]
        platforms = self._supervisor.services.settings(plugin_id).platforms
        found.sort(
            key=lambda ref: (
                ref.platform not in platforms,
                self._view.get(records.Completion, ref.digest) is None,
                platforms.index(ref.platform) if ref.platform in platforms else 0,
                ref.digest,
            )
        )
        if not found:
            known = ", ".join(str(rev) for rev in sorted({ref.rev for ref in refs})) or "none"
            wanted = f"rev {rev}" if rev is not None else digest
            raise _refused("UNKNOWN_VERSION", f"{plugin_id} {wanted} is not known", f"known revisions: {known}")
        return found[0]

    async def unpin(self, plugin: str, who: str) -> Page:
        """Select by revision again."""
        name = self._name(plugin)
        if self._view.get(records.Pin, plugin_of(name)) is None:
            raise _refused("UNAVAILABLE", f"{name} has no pin", "`pin` in the configuration is removed there")
        await self._write(lambda _view: [Delete(records.Pin.kind, plugin_of(name))])
        self._tell("unpinned", name, who)
        return {"plugin": name, "phase": self._phase(name)}

    async def rollback(self, plugin: str, who: str) -> Page:
        """Go back to what was live before, and stay there until `unpin`.

        From GUARD a world that cannot be written hinders only the staying: the version before is warm, and the other one
        in quarantine. Then it is done all the same, and the error that is raised says so; also where nothing would obey
        the pin.
        """
        name = self._name(plugin)
        routine = self._routine(name)
        warm = _previous(routine)
        digest = warm or self._before(name, routine)
        rev = self._supervisor.catalog.manifest(digest).rev
        if warm is not None:
            message = f"rolled back by {who}"
            self._tell("rolled_back", name, who, rev=rev, digest=digest)
            abort = Abort(Failure(Cause.OPERATOR, "ROLLED_BACK", message, QUARANTINE_HINT), who)
            try:
                await routine.obey(abort)
            except HostError as error:
                raise _unpinned(error, name, rev, is_done=True) from error
            found, why, hint = under_pin(self._supervisor, name, Pin(digest=digest), digest)
            if found is None:
                raise _refused("UNAVAILABLE", f"{name} went back to rev {rev}, and nothing keeps it there: {why}", hint)
        pin = records.Pin(plugin_of(name), None, Digest(digest), who, self._now())
        try:
            await self._write(lambda _view: [Put(pin)])
        except HostError as error:
            raise _unpinned(error, name, rev, is_done=warm is not None) from error
        if warm is None:
            # The pin alone would begin a rollout with all its steps; without it, whatever is selected next would undo this.
            routine.post(GoTo(digest, who))
            self._tell("rolled_back", name, who, rev=rev, digest=digest)
        return {**_is_pin(name), "plugin": name, "rev": rev, "digest": digest, "phase": self._phase(name)}

    def _before(self, name: str, routine: Routine) -> str:
        """The newest digest of the history that is not what runs, and that a pin would run at once."""
        view, live = self._view, routine.state.live or routine.state.candidate
        current = live.build.digest if live is not None else routine.state.facts.last
        refused: tuple[str, str] | None = None
        for entry in sorted(self._history(name), key=lambda entry: -entry.number):
            is_usable = view.get(records.Completion, entry.digest) and not view.get(records.Quarantine, entry.digest)
            if entry.digest != current and is_usable:
                found, why, hint = under_pin(self._supervisor, name, Pin(digest=entry.digest), entry.digest)
                if found is not None:
                    return entry.digest
                refused = refused or (f": of rev {entry.rev}, {why}", hint)
        why, hint = refused or ("", f"`hotbay history {name}` shows what was live")
        raise _refused("UNAVAILABLE", f"{name} has no version to go back to{why}", hint)

    async def enable(self, plugin: str, who: str) -> Page:
        """Start a plugin again that was disabled, by the operator or by its failures."""
        name = self._name(plugin)
        await self._write(lambda _view: [Delete(records.Disabled.kind, plugin_of(name))])
        self._forgive(plugin_of(name))
        self._tell("enabled", name, who)
        return {"plugin": name, "phase": self._phase(name)}

    async def disable(self, plugin: str, who: str, *, force: bool = False) -> Page:
        """Drain and stop a plugin, and keep it down; its bindings apply their failure policies."""
        name = self._name(plugin)
        closed = self._fail_closed(plugin_of(name))
        if closed and not force:
            raise _refused(
                "UNAVAILABLE",
                f"{', '.join(closed)} of {name} fails closed: without it requests are refused",
                "change its on_failure first, or say --force",
            )
        record = records.Disabled(plugin_of(name), who, self._now())
        await self._write(lambda _view: [Put(record)])
        self._tell("disabled", name, who)
        return {"plugin": name, "phase": self._phase(name)}

    def _fail_closed(self, plugin_id: str) -> tuple[str, ...]:
        refs = {
            ref.name
            for ref in self._supervisor.deployment.scheduling.refs
            if ref.plugin_id is not None and plugin_of(ref.plugin_id) == plugin_id
        }
        bound = {b.ref for b in self._ports.bindings() if b.policy is Policy.FAIL_CLOSED}
        return tuple(sorted(refs & bound))

    async def rollout(self, plugin: str, action: str, who: str) -> Page:
        """Steer the rollout under way: pause, resume, promote, abort or approve."""
        name = self._name(plugin)
        commands: Mapping[str, Command] = {
            "pause": Pause(),
            "resume": Resume(),
            "promote": Promote(),
            "abort": Abort(Failure(Cause.OPERATOR, "ABORTED", f"aborted by {who}", QUARANTINE_HINT), who),
            "approve": Approve(who),
        }
        command = commands.get(action)
        if command is None:
            raise _refused("CONFIG_INVALID", f"unknown action '{action}'", f"one of {', '.join(commands)}")
        routine = self._routine(name)
        phases = COMMANDS[type(command)]
        if routine.state.phase not in phases:
            acts = ", ".join(sorted(LIVE if phase is Phase.IDLE else str(phase) for phase in phases))
            raise _refused(
                "UNAVAILABLE", f"nothing to {action}: {name} is {self._phase(name)}", f"{action} acts while: {acts}"
            )
        told = {}
        if action == "pause" and routine.state.phase is Phase.IDLE:
            told["message"] = f"nothing is under way; the next rollout waits for `hotbay rollout resume {name}`"
        self._tell(f"rollout_{action}", name, who)
        try:
            await routine.obey(command)
        except HostError as error:
            raise _unrecorded(error, name, action) from error
        return {**told, "plugin": name, "action": action, "phase": self._phase(name)}

    async def clear_quarantine(self, plugin_or_digest: str, who: str) -> Page:
        """Let a digest, or everything of a plugin, be selected again."""
        held = self._view.all(records.Quarantine)
        target = whole_digest(plugin_or_digest, [entry.digest for entry in held])
        found = [entry for entry in held if target in (entry.digest, entry.plugin_id)]
        if not found and not plugin_or_digest.startswith("sha256:"):
            self._name(plugin_or_digest)
        if not found:
            raise _refused(
                "UNAVAILABLE", f"nothing of {plugin_or_digest} is in quarantine", "`hotbay quarantine list` shows all"
            )
        await self._write(lambda _view: [Delete(records.Quarantine.kind, entry.digest) for entry in found])
        for plugin_id in {entry.plugin_id for entry in found}:
            self._forgive(plugin_id)
            self._tell("quarantine_cleared", plugin_id, who)
        return {"cleared": [_quarantine_page(entry) for entry in found]}

    async def grant(self, plugin: str, capabilities: Sequence[str], who: str) -> Page:
        """Allow a plugin these capabilities, and no others by command."""
        plugin_id = plugin_of(self._name(plugin))
        builds = self._supervisor.catalog.manifests.values()
        check_grant(
            capabilities, asked={name for build in builds if build.id == plugin_id for name in build.capabilities}
        )
        record = records.Grant(plugin_id, tuple(sorted(set(capabilities))), who, self._now())
        await self._write(lambda _view: [Put(record)])
        self._tell("granted", plugin_id, who, capabilities=list(record.capabilities))
        return {"plugin": plugin_id, "capabilities": list(record.capabilities), "phase": self._phase(plugin_id)}

    async def gc(self, *, dry_run: bool = False) -> Page:
        """Remove what nothing needs, or say what that is."""
        plan = await self._ports.collect(self._supervisor.in_use, dry_run=dry_run)
        return {
            "dry_run": dry_run,
            "blobs": len(plan.blobs),
            "environments": len(plan.environments),
            "completions": [str(digest) for digest in plan.completions],
            "bytes": plan.size_bytes,
        }

    # -- inside ----------------------------------------------------------------------------------

    @property
    def _view(self) -> WorldView:
        return self._supervisor.world.view

    def _now(self) -> float:
        return self._supervisor.services.wall()

    async def _write(self, build: Callable[[WorldView], Iterable[Change]]) -> None:
        await self._supervisor.world.transact(build)
        self._supervisor.follow()

    def _forgive(self, plugin_id: str) -> None:
        for name, routine in self._supervisor.routines.items():
            if plugin_of(name) == plugin_id:
                routine.post(Forgive())

    def _tell(self, event: str, plugin: str, who: str, **fields: object) -> None:
        logger.info("operator event=%s plugin=%s who=%s", event, plugin, who, extra={"plugin": plugin})
        self._events.happened(Occurrence(event, plugin, {"who": who, **fields}))

    def _history(self, name: str) -> list[records.History]:
        return list(history_of(self._view, name))

    def _phase(self, name: str) -> str:
        routine = self._supervisor.routines.get(name)
        return phase_text(routine.row) if routine is not None else "not referenced"

    def _routine(self, name: str) -> Routine:
        routine = self._supervisor.routines.get(name)
        if routine is None:
            raise _refused(
                "UNAVAILABLE",
                f"{name} is known, but nothing refers to it",
                "use one of its types in the scheduling configuration",
            )
        return routine

    def _name(self, plugin: str) -> str:
        """The plugin as it is known. Raises `InputError` UNKNOWN_PLUGIN with the nearest one."""
        known = {*self._supervisor.routines, *self._supervisor.catalog.plugin_ids()}
        if plugin in known:
            return plugin
        near = difflib.get_close_matches(plugin, sorted(known), n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(known)) or 'none'}"
        raise _refused("UNKNOWN_PLUGIN", f"there is no plugin '{plugin}'", hint)


QUARANTINE_HINT: Final = "`hotbay quarantine clear` lets it be tried again"


def _is_pin(name: str) -> Page:
    return {"message": f"this is a pin: `hotbay unpin {plugin_of(name)}` ends it"}


def _previous(routine: Routine) -> str | None:
    """The digest that is kept warm while the one that replaced it is watched."""
    state = routine.state
    return state.previous.build.digest if state.phase is Phase.GUARD and state.previous is not None else None


def _refused(code: str, message: str, hint: str) -> HostError:
    return InputError([Problem(code, message, hint=hint)])


def _unpinned(error: HostError, name: str, rev: int, *, is_done: bool) -> HostError:
    """What to tell of a rollback whose pin is not written."""
    plugin_id, space = plugin_of(name), "free space in the state directory, or let the host's user write it"
    if is_done:
        message = f"{name} went back to rev {rev}, but what keeps it there is not written: {error.message}"
        hint = f"{space}, then `hotbay pin {plugin_id}@{rev}`: until then a newer version than both takes its place"
    else:
        message = f"{name} was not rolled back: {error.message}"
        hint = f"{space}, and repeat; `pin: {rev}` for {plugin_id} in the configuration's packages needs no write"
    return CapacityError(error.code, message, hint=hint)


def _unrecorded(error: HostError, name: str, action: str) -> HostError:
    """What to tell of a command that was carried out and is not written."""
    message = f"{action} of {name} is done, and what came of it is not written yet: {error.message}"
    hint = f"{error.hint}; it is written as soon as that works, and a host that ends before knows nothing of it"
    return CapacityError(error.code, message, hint=hint)


def _history_page(entry: records.History) -> Page:
    return {
        "at_s": entry.at_s,
        "version": entry.version,
        "rev": entry.rev,
        "digest": str(entry.digest),
        "generation": entry.generation,
        "why": entry.why,
        "who": entry.who,
    }


def _quarantine_page(entry: records.Quarantine) -> Page:
    return {
        "plugin": entry.plugin_id,
        "rev": entry.rev,
        "digest": str(entry.digest),
        "code": entry.code,
        "reason": entry.reason,
        "count": entry.count,
        "at_s": entry.at_s,
        "until_s": entry.until_s,
    }
