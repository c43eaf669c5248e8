"""Which configuration holds for whom while another one is on its way."""

from pathlib import Path

import pytest
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.in_force import InForce

CONFIG = "apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: state\nlisten: {http: '127.0.0.1:0'}\nsources: []\n"


@pytest.fixture
def configs(tmp_path: Path) -> list[HostConfig]:
    return [
        load_host_config(CONFIG, file="host.yaml", base_directory=tmp_path, environment={}, is_root=False)
        for _ in range(3)
    ]


def who(both: InForce) -> list[HostConfig]:
    return [both.of("old"), both.of("new")]


def begun(config: HostConfig) -> InForce:
    made = InForce(config)
    made.is_only_incoming = lambda name: name == "new"
    return made


def test_one_on_its_way_holds_for_what_only_it_needs(configs: list[HostConfig]) -> None:
    first, second, _ = configs
    both = begun(first)
    assert all(a is b for a, b in zip(who(both), (first, first), strict=True))
    both.offer(second)
    assert all(a is b for a, b in zip(who(both), (first, second), strict=True))
    both.take(second)
    assert all(a is b for a, b in zip(who(both), (second, second), strict=True))
    assert both.incoming is None


def test_one_that_is_given_up_leaves_no_trace(configs: list[HostConfig]) -> None:
    first, second, _ = configs
    both = begun(first)
    both.offer(second)
    both.give_up(second)
    assert both.config is first
    assert both.incoming is None


@pytest.mark.parametrize("ends", ["take", "give_up"])
def test_end_of_an_older_one_leaves_the_newest_on_its_way(configs: list[HostConfig], ends: str) -> None:
    first, second, third = configs
    both = begun(first)
    both.offer(second)
    both.offer(third)
    getattr(both, ends)(second)
    assert both.incoming is third
    assert both.config is (second if ends == "take" else first)


@pytest.mark.parametrize("ends", ["take", "give_up"])
def test_one_that_still_waits_counts_again_when_a_newer_one_is_given_up(configs: list[HostConfig], ends: str) -> None:
    """As when an edit is refused at once while the packages of the one before it are downloaded."""
    first, second, third = configs
    both = begun(first)
    both.offer(second)
    both.offer(third)
    both.give_up(third)
    assert both.of("new") is second
    assert both.of("old") is first
    getattr(both, ends)(second)
    assert both.incoming is None
    assert both.config is (second if ends == "take" else first)


def test_older_ones_count_no_more_when_a_newer_one_is_in_force(configs: list[HostConfig]) -> None:
    first, second, third = configs
    both = begun(first)
    both.offer(second)
    both.offer(third)
    both.take(third)
    assert both.incoming is None
    both.give_up(second)
    assert (both.config, both.incoming) == (third, None)


def test_every_change_is_told(configs: list[HostConfig]) -> None:
    told: list[tuple[bool, bool]] = []
    both = begun(configs[0])
    both.changed = lambda: told.append((both.config is configs[0], both.incoming is None))
    both.offer(configs[1])
    both.give_up(configs[1])
    both.offer(configs[2])
    both.take(configs[2])
    assert told == [(True, False), (True, True), (True, False), (False, True)]
