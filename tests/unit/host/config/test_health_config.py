"""The `health` of a HostConfig: strict, on both sides of its bounds, and the same numbers as the code's own."""

from pathlib import Path

import pytest
from hotbay.cli.effective import effective_host
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.datalayer.health.state import HealthLimits
from hotbay.errors import InputError
from hotbay.gateway.limits import GatewayLimits
from hotbay.wishes import ejection_limits


def load(text: str) -> HostConfig:
    return load_host_config(
        f"apiVersion: hotbay/v1alpha1\nkind: HostConfig\n{text}",
        file="host.yaml",
        base_directory=Path("/x"),
        environment={"HOME": "/x"},
        is_root=False,
    )


def test_defaults_are_those_of_the_code() -> None:
    assert ejection_limits(load("")) == HealthLimits()


def test_every_number_reaches_the_code() -> None:
    config = load(
        "health: {eject: {unreachable: 2, error_share: 0.25, min_requests: 3, slow_factor: 2, slow: 3s, min_samples: 4, "
        "interval: 5s, base: 6s, longest: 7s, max: 0.1, silent: 9s, silent_whole: 10s}, slow_start: 8s}"
    )
    assert ejection_limits(config) == HealthLimits(2, 0.25, 3, 2.0, 3.0, 4, 5.0, 6.0, 7.0, 0.1, 9.0, 10.0)
    assert config.health.slow_start_s == 8.0


def test_off_ejects_nobody_and_is_printed_as_off() -> None:
    config = load("health: {eject: off}")
    assert ejection_limits(config) is None
    assert effective_host(config)["health"] == {"eject": "off", "slow_start": "30.0s"}


@pytest.mark.parametrize(
    "eject",
    ["unreachable: 1", "unreachable: 1000", "error_share: 1", "slow_factor: 1.01", "slow: 0s", "min_samples: 60", "max: 1",
     "{base: 5m, longest: 5m}"],
)  # fmt: skip
def test_what_is_just_allowed_is_taken(eject: str) -> None:
    load(f"health: {{eject: {eject if eject.startswith('{') else '{' + eject + '}'}}}")


@pytest.mark.parametrize(
    ("health", "path"),
    [
        ("eject: {unreachable: 0}", "health.eject.unreachable"),
        ("eject: {unreachable: 1001}", "health.eject.unreachable"),
        ("eject: {error_share: 0}", "health.eject.error_share"),
        ("eject: {error_share: 1.1}", "health.eject.error_share"),
        ("eject: {min_requests: 0}", "health.eject.min_requests"),
        ("eject: {slow_factor: 1}", "health.eject.slow_factor"),
        ("eject: {min_samples: 61}", "health.eject.min_samples"),
        ("eject: {silent: 0s}", "health.eject.silent"),
        ("eject: {silent_whole: 0s}", "health.eject.silent_whole"),
        ("eject: {base: 0s}", "health.eject.base"),
        ("eject: {base: 5}", "health.eject.base"),
        ("eject: {base: 6m}", "longest"),
        ("eject: {max: 0}", "health.eject.max"),
        ("eject: {max: 1.01}", "health.eject.max"),
        ("eject: {bases: 1s}", "bases"),
        ("eject: never", "health.eject"),
        ("slow_start: -1s", "health.slow_start"),
        ("slow_starts: 1s", "slow_starts"),
    ],
)
def test_what_is_not_allowed_is_refused_with_its_place(health: str, path: str) -> None:
    with pytest.raises(InputError) as caught:
        load(f"health: {{{health}}}")
    (problem,) = caught.value.problems
    assert path in str(problem)
    assert str(problem).startswith("host.yaml:3:")


@pytest.mark.parametrize("text", ["swap: {canary: {shares: 1}}", "sources: [{name: a, directory: x, auth: {user: b}}]"])
def test_unknown_key_of_a_section_that_may_be_absent_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InputError) as caught:
        load(text)
    assert caught.value.problems[0].code == "UNKNOWN_FIELD"


@pytest.mark.parametrize(("text", "seconds"), [("100ms", 0.1), ("24h", 86400.0)])
def test_time_for_a_first_byte_is_the_operators(text: str, seconds: float) -> None:
    assert load("").limits.first_byte_s == GatewayLimits().first_byte_s
    assert load(f"limits: {{first_byte: {text}}}").limits.first_byte_s == seconds


@pytest.mark.parametrize("text", ["99ms", "0s", "25h", "30", "-1s"])
def test_time_for_a_first_byte_is_bounded_and_refused_with_its_place(text: str) -> None:
    with pytest.raises(InputError) as caught:
        load(f"limits: {{first_byte: {text}}}")
    (problem,) = caught.value.problems
    assert "limits.first_byte" in str(problem)
    assert str(problem).startswith("host.yaml:3:")
