"""What the admin socket can ask of a host, as a Protocol: whoever owns the rollouts carries it out.

Answers are made of what JSON has: mappings with text keys, lists, text, numbers, booleans and None. Times are `…_at_s`
or `at_s` in seconds since the epoch, ages `…_s`, sizes `…_bytes`. Calls may overlap. What cannot be done is raised as
`HostError` with a hint; an unknown plugin is an `InputError` whose code is `UNKNOWN_PLUGIN` and whose text names the
nearest one.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

__all__ = ["AdminOperations", "EndpointOperations", "InspectOperations", "Page"]

Page = Mapping[str, object]


class AdminOperations(Protocol):
    """One method for each thing that an operator can want. `who` is the name of the user who asks."""

    async def status(self) -> Page:
        """What runs now: `{version, ready, plugins: [row], endpoints, sources, problems, …}`.

        A row that is being fetched has `progress: {bytes, total_bytes}`.
        """

    async def plan(self) -> Page:
        """What `apply` would change, what is under way, and versions that are newer, or never ran, and are not chosen.

        `{changes: [{plugin, action, from, to, why}], not_chosen: [{plugin, rev, digest, why, hint}], …}`
        Where something in force acts at the next start only, here and in `apply`: `at_the_next_start: [name]`.
        """

    async def apply(self, who: str) -> Page:
        """Put the lock file and a configuration that waits for it in force; answers what was changed."""

    async def pin(self, plugin: str, *, rev: int | None = None, digest: str | None = None, who: str) -> Page:
        """Select this revision or digest, exactly one of them, and nothing else.

        A digest may be named by its first 12 or more hex digits, here and in quarantine, if no other begins so.
        """

    async def unpin(self, plugin: str, who: str) -> Page:
        """Select by revision again."""

    async def rollback(self, plugin: str, who: str) -> Page:
        """Go back to what was live before, and stay there."""

    async def enable(self, plugin: str, who: str) -> Page:
        """Start a disabled plugin again."""

    async def disable(self, plugin: str, who: str, *, force: bool = False) -> Page:
        """Drain and stop; refused without `force` when requests would be refused for want of it."""

    async def rollout(self, plugin: str, action: str, who: str) -> Page:
        """Steer the rollout under way: pause, resume, promote, abort or approve."""

    async def quarantine(self) -> Page:
        """`{quarantine: [{plugin, rev, digest, code, reason, count, at_s, until_s}]}`."""

    async def clear_quarantine(self, plugin_or_digest: str, who: str) -> Page:
        """Let a digest, or everything of a plugin, be selected again; answers what was cleared."""

    async def grant(self, plugin: str, capabilities: Sequence[str], who: str) -> Page:
        """Allow a plugin these capabilities, and no others."""

    async def history(self, plugin: str) -> Page:
        """`{plugin, history: [{at_s, version, rev, digest, generation, why, who}]}`, the newest last."""

    async def logs(self, plugin: str, lines: int) -> Page:
        """`{plugin, lines: [{at_s, rev, generation, pid, stream, line}]}`: the last lines that its processes wrote."""

    def follow(self, plugin: str) -> AsyncIterator[Page]:
        """Such lines as its processes write them, without end."""

    async def gc(self, *, dry_run: bool = False) -> Page:
        """Remove what nothing needs, or say what that is: `{dry_run, blobs, environments, bytes}`."""

    def events(self) -> AsyncIterator[Page]:
        """What happens, as it happens, without end: `{at_s, event, plugin, …}`."""

    async def lock(self) -> Page:
        """The lock file that says what is complete now: a document that HostConfig's `lock` can name."""


class EndpointOperations(Protocol):
    """The same for model servers. `ids` or `selector`, exactly one of them, says which; `who` as above.

    An unknown endpoint is an `InputError` whose code is `UNKNOWN_ENDPOINT` and whose text names the nearest one.
    """

    async def endpoints(self) -> Page:
        """`{endpoints: [row], leaving: [row], absent: [row]}`.

        All of them, those that are gone and work on requests still, and those that a command named and that are not there.
        """

    async def cordon(self, ids: Sequence[str], selector: str | None, who: str) -> Page:
        """Give them nothing new; answers `{endpoints: [{id, state, weight, in_flight}]}`, as the next two."""

    async def uncordon(self, ids: Sequence[str], selector: str | None, who: str) -> Page:
        """Give them requests again."""

    async def weigh(self, ids: Sequence[str], selector: str | None, weight: str, who: str) -> Page:
        """Give them a share, 0 to 1, or the one that discovery says."""


class InspectOperations(Protocol):
    """To look into decisions and states; nothing is changed by it."""

    async def explain(self, request_id: str) -> Page:
        """`{decisions: [page], kept}`: why the decisions for a request came out so, the latest last.

        One that is not kept is an `InputError` whose code is `NOT_FOUND` and whose text says how many are, and how old.
        """

    async def latest(self, count: int) -> Page:
        """The same for the newest decisions."""

    async def dump(self, ref: str | None) -> Page:
        """`{plugins: [{ref, type, plugin, generation, state | error}], host: {part: state}}`: of one ref, or all that show any.

        An unknown ref is an `InputError` whose code is `NOT_FOUND` and whose text names the nearest one.
        """
