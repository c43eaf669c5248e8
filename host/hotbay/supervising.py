"""Builds what starts plugins and keeps them: their catalog, the deployment of their refs, their supervisor, their records.

Decides nothing: a part of the wiring in `app`.
"""

import random
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.abc

from hotbay.config.picker_config import PickerConfig
from hotbay.datalayer.remote.provider import RemoteTypes
from hotbay.depot import CountedFetcher, Depot, platforms_of
from hotbay.in_force import InForce
from hotbay.launcher import Launcher
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics
from hotbay.process.leftovers import HostRecords
from hotbay.rollout.catalog import Catalog
from hotbay.rollout.deployment import Deployment
from hotbay.rollout.events import EventLog
from hotbay.rollout.resolution import resolve
from hotbay.rollout.services import Occurrence, Services
from hotbay.rollout.supervisor import Supervisor
from hotbay.rpc.host_calls import HostCall
from hotbay.scheduling.router import Router
from hotbay.store.state_dir import unusable
from hotbay.wishes import allowance, binding_keys, binding_options, plugin_settings, trial_policies

__all__ = ["PluginParts", "make_supervisor", "open_records"]


@dataclass(frozen=True, slots=True)
class PluginParts:
    """What plugins are started with, and who hears of them.

    `lend` makes what answers the host calls of one process, see `Services`; `wall` is seconds since the epoch.
    """

    in_force: InForce
    depot: Depot
    launcher: Launcher
    router: Router
    kinds: RemoteTypes
    metrics: Metrics
    events: EventLog
    lend: Callable[[str, str, Collection[str], Callable[[str], None]], Callable[[HostCall], None]]
    background: Background
    wall: Callable[[], float]


def make_supervisor(parts: PluginParts, picker: PickerConfig, group: anyio.abc.TaskGroup) -> Supervisor:
    """A supervisor of what `picker` needs, which is to be started. Raises `InputError` for what `picker` names in vain."""
    in_force, depot, router = parts.in_force, parts.depot, parts.router
    config, catalog = in_force.config, Catalog()
    catalog.read(depot.world.view)
    index = catalog.index(config.types)
    scheduling = resolve(
        picker,
        index,
        binding_options(config),
        keys=binding_keys(config),
        unusable=depot.problems(),
        asked=depot.sources,
        allowance=allowance(config),
    )
    deployment = Deployment(router, scheduling, index)
    parts.kinds.bind(deployment, router)
    in_force.is_only_incoming = deployment.is_only_incoming
    in_force.changed = lambda: depot.obey(in_force.config, incoming=in_force.incoming)
    supervisor = Supervisor(
        depot.world,
        catalog,
        deployment,
        partial(_services, parts, deployment),
        group,
        ranking=config.types,
        sources=depot.sources.keys(),
        problems=depot.problems,
        background=parts.background,
    )
    router.wake = supervisor.wake
    return supervisor


def _services(parts: PluginParts, deployment: Deployment, supervisor: Supervisor) -> Services:
    in_force, depot, router = parts.in_force, parts.depot, parts.router
    config = in_force.config
    return Services(
        world=depot.world,
        fetcher=CountedFetcher(depot.fetcher, parts.metrics),
        deployment=deployment,
        launcher=parts.launcher,
        lend=parts.lend,
        measures=router,
        settings=lambda name: plugin_settings(it := in_force.of(name), name, platforms=platforms_of(it)),
        facts=supervisor.facts,
        manifest=supervisor.catalog.manifest,
        ref=supervisor.catalog.ref,
        policies=lambda: trial_policies(in_force.config),
        now=time.monotonic,
        wall=parts.wall,
        random=random.SystemRandom().random,
        starts=anyio.CapacityLimiter(config.supervise.max_parallel_starts),
        drain_s=config.swap.drain_s,
        linger_s=config.supervise.linger_s,
        retired=lambda generation: router.retire(generation.number),
        happened=partial(_happened, parts),
        on_trial=supervisor.on_trial,
        refs_changed=supervisor.refs_changed,
        settled=supervisor.settled,
    )


def _happened(parts: PluginParts, occurrence: Occurrence) -> None:
    plugin, metrics = occurrence.plugin, parts.metrics
    if occurrence.event == "crashed":
        metrics.plugin_restart(plugin)
    elif occurrence.event == "swapped":
        metrics.rollout(plugin, "live")
    elif occurrence.event == "candidate_failed":
        metrics.rollout(plugin, str(occurrence.fields["code"]))
    parts.events.happened(occurrence)


def open_records(root: Path) -> HostRecords:
    """End what dead hosts left behind, and begin this host's records. Blocks. Raises `InputError`."""
    try:
        return HostRecords.open(root)
    except OSError as error:
        raise unusable(root, error) from error
