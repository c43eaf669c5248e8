"""What a HostConfig means for rollouts and scheduling."""

from pathlib import Path

import pytest
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.rollout.selection import Pin
from hotbay.scheduling.binding import Policy
from hotbay.wishes import binding_keys, binding_options, entry_of, plugin_settings, trial_policies

DIGEST = f"sha256:{'a' * 64}"


def config(text: str) -> HostConfig:
    return load_host_config(text, file="host.yaml", base_directory=Path("/"), environment={}, is_root=True)


def test_defaults_are_the_numbers_of_the_rollout_table():
    settings = plugin_settings(config(""), "a", platforms=("p", "q"))
    assert (settings.platforms, settings.channels, settings.pin) == (("p", "q"), {"release", "dev"}, None)
    rules = settings.rules
    assert (rules.shadow, rules.canary, rules.guard) == (True, True, True)
    assert (rules.handover, rules.approve, rules.standby, settings.first_use) == (False, False, False, False)
    policies = trial_policies(config(""))
    assert (policies.shadow.sample, policies.shadow.calls, policies.shadow.for_s) == (0.1, 200, 2)
    assert (policies.canary.share, policies.canary.for_s, policies.canary.min_requests) == (0.1, 10, 100)
    assert (policies.guard.for_s, policies.guard.calls) == (30, 200)


def test_every_wish_arrives():
    given = config(
        "packages: [{id: a, publisher: me, channel: release, pin: 7, standby: 1, start: first-use, idle: 5s, grants: [storage]}]\n"
        f"trust: {{denied: ['{DIGEST}']}}\n"
        "swap: {mode: handover, shadow: off, canary: off, guard: {for: 1s, calls: 3}, approve: manual}\n"
        "supervise: {restart: {first: 1s, factor: 3, max: 9s}, stable: 2s, budget: {failures: 4, within: 8s}}\n"
    )
    settings = plugin_settings(given, "a", platforms=("p",))
    assert (settings.publisher, settings.channels, settings.pin) == ("me", {"release"}, Pin(rev=7))
    assert (settings.first_use, settings.idle_s, settings.grants) == (True, 5, {"storage"})
    assert settings.denied == {DIGEST}
    rules = settings.rules
    assert (rules.shadow, rules.canary, rules.guard) == (False, False, True)
    assert (rules.handover, rules.approve, rules.standby) == (True, True, True)
    backoff = rules.backoff
    assert (backoff.first_s, backoff.factor, backoff.max_s, backoff.stable_s) == (1, 3, 9, 2)
    assert (backoff.budget_failures, backoff.budget_within_s) == (4, 8)
    assert (trial_policies(given).guard.for_s, trial_policies(given).guard.calls) == (1, 3)


def test_a_pin_may_name_a_digest():
    settings = plugin_settings(config(f"packages: [{{id: a, pin: '{DIGEST}'}}]"), "a", platforms=("p",))
    assert settings.pin == Pin(digest=DIGEST)


@pytest.mark.parametrize(("name", "ready_s"), [("a", 1), ("a/blue", 2), ("a/green", 1), ("b", 30)])
def test_an_instance_key_has_its_own_entry_or_that_of_its_plugin(name: str, ready_s: float):
    given = config("packages: [{id: a, ready: 1s}, {id: a, key: blue, ready: 2s}]")
    assert entry_of(given, name).ready_s == ready_s


def test_bindings_become_options_and_keys():
    given = config("bindings: {q: {on_failure: neutral, neutral: 0.5, deadline: 2s, key: blue}, r: {}}")
    options = binding_options(given)
    assert (options["q"].on_failure, options["q"].deadline_s, options["q"].neutral) == (Policy.NEUTRAL, 2, 0.5)
    assert options["r"].on_failure is None
    assert binding_keys(given) == {"q": "blue"}
