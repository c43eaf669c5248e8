"""What an operator's HostConfig means for rollouts and scheduling: one configuration in, their own values out. Pure."""

from collections.abc import Mapping, Sequence

from hotbay.config.host_config import HostConfig, PackageEntry
from hotbay.datalayer.health.state import HealthLimits
from hotbay.rollout.backoff import BackoffPolicy
from hotbay.rollout.facts import PluginSettings, plugin_of
from hotbay.rollout.resolution import Allowance
from hotbay.rollout.selection import Pin
from hotbay.rollout.services import TrialPolicies
from hotbay.rollout.state import Rules
from hotbay.rollout.verdicts import CanaryPolicy, GuardPolicy, ShadowPolicy
from hotbay.scheduling.binding import BindingOptions, Policy

__all__ = [
    "allowance",
    "binding_keys",
    "binding_options",
    "ejection_limits",
    "entry_of",
    "explain_bounds",
    "plugin_settings",
    "trial_policies",
]


def entry_of(config: HostConfig, name: str) -> PackageEntry:
    """What the operator wants for a routine's name: `id`, or `id/key`; the plugin's own entry where the key has none."""
    plugin_id, _, key = name.partition("/")
    entries = {(entry.id, entry.key): entry for entry in config.packages}
    return entries.get((plugin_id, key)) or entries.get((plugin_id, "")) or PackageEntry(id=plugin_id)


def plugin_settings(config: HostConfig, name: str, *, platforms: Sequence[str]) -> PluginSettings:
    """What the operator decided about a plugin, or one instance key of it."""
    entry, supervise, swap = entry_of(config, name), config.supervise, config.swap
    pin = None
    if entry.pin is not None:
        pin = Pin(rev=entry.pin) if isinstance(entry.pin, int) else Pin(digest=entry.pin)
    backoff = BackoffPolicy(
        first_s=supervise.restart.first_s,
        factor=supervise.restart.factor,
        max_s=supervise.restart.max_s,
        stable_s=supervise.stable_s,
        budget_failures=supervise.budget.failures,
        budget_within_s=supervise.budget.within_s,
    )
    rules = Rules(
        shadow=swap.shadow is not None,
        canary=swap.canary is not None,
        guard=swap.guard is not None,
        handover=swap.mode == "handover",
        approve=swap.approve == "manual",
        standby=entry.standby > 0,
        backoff=backoff,
    )
    level = entry.isolation or config.isolation.level
    return PluginSettings(
        platforms=tuple(platforms),
        channels=frozenset({"release", "dev"} if entry.channel is None else {entry.channel}),
        publisher=entry.publisher,
        pin=pin,
        grants=frozenset(entry.grants),
        denied=frozenset(config.trust.denied),
        rules=rules,
        first_use=entry.start == "first-use",
        idle_s=entry.idle_s,
        launch=f"{plugin_of(name)} {level}",
    )


def trial_policies(config: HostConfig) -> TrialPolicies:
    """The numbers of the steps of a swap; a step that is off has its defaults, which nobody asks for."""
    shadow, canary, guard = config.swap.shadow, config.swap.canary, config.swap.guard
    return TrialPolicies(
        shadow=ShadowPolicy()
        if shadow is None
        else ShadowPolicy(shadow.sample, shadow.calls, shadow.for_s, shadow.max_difference),
        canary=CanaryPolicy() if canary is None else CanaryPolicy(canary.share, canary.for_s, canary.min_requests),
        guard=GuardPolicy() if guard is None else GuardPolicy(guard.for_s, guard.calls),
    )


def binding_options(config: HostConfig) -> dict[str, BindingOptions]:
    """HostConfig's `bindings` as the scheduler wants them."""
    return {
        name: BindingOptions(Policy(b.on_failure) if b.on_failure is not None else None, b.deadline_s, b.neutral)
        for name, b in config.bindings.items()
    }


def allowance(config: HostConfig) -> Allowance:
    """What of a scheduling configuration the rest of the host's decides."""
    return Allowance(config.scheduling.allow_experimental, has_objectives=bool(config.models.files))


def binding_keys(config: HostConfig) -> Mapping[str, str]:
    """Which refs have an instance of their own, by ref name."""
    return {name: binding.key for name, binding in config.bindings.items() if binding.key}


def ejection_limits(config: HostConfig) -> HealthLimits | None:
    """When endpoints are ejected; None where none is."""
    eject = config.health.eject
    if eject is None:
        return None
    return HealthLimits(
        unreachable=eject.unreachable,
        error_share=eject.error_share,
        min_requests=eject.min_requests,
        slow_factor=eject.slow_factor,
        slow_s=eject.slow_s,
        min_samples=eject.min_samples,
        interval_s=eject.interval_s,
        base_s=eject.base_s,
        max_s=eject.longest_s,
        max_ejected=eject.max_share,
        silent_s=eject.silent_s,
        silent_whole_s=eject.silent_whole_s,
    )


def explain_bounds(config: HostConfig) -> dict[str, int]:
    """How many decisions are kept, and of how many bytes."""
    return {"max_count": config.explain.keep, "max_bytes": config.explain.max_bytes}
