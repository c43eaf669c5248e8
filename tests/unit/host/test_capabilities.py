"""The table of capabilities: names that manifests take, and every host call in it once or for everybody."""

import pytest
from hotbay.capabilities import CAPABILITIES, capability_of, check_grant, grant_command, unknown_capabilities
from hotbay.errors import InputError
from hotbay.packages.manifest import check_label
from hotbay_sdk.protocol import METHODS, Method


def test_names_are_labels_and_sorted() -> None:
    assert list(CAPABILITIES) == sorted(CAPABILITIES)
    assert all(check_label(name) == name == each.name for name, each in CAPABILITIES.items())


def test_every_host_call_is_one_capabilitys_or_everybodys() -> None:
    named = [call for each in CAPABILITIES.values() for call in each.calls]
    host_calls = {number for number, spec in METHODS.items() if not spec.by_host}
    assert len(named) == len(set(named))
    assert host_calls - set(named) == {Method.LOG, Method.NOW, Method.RANDOM}
    assert set(named) < host_calls


def test_calls_that_are_none_of_the_hosts_need_nothing() -> None:
    assert [capability_of(method) for method in (Method.RUN, Method.LOG, 0, 2**31)] == [None] * 4
    assert capability_of(Method.STORAGE_PUT) == "storage"


@pytest.mark.parametrize(("name", "meant"), [("metrics", "metric"), ("zzz", ""), ("host-calls", "")])
def test_unknown_names_come_with_what_is_likely_meant(name: str, meant: str) -> None:
    assert unknown_capabilities(["storage", name]) == {name: meant}


def test_grant_of_unknown_names_is_refused_with_those_that_are_known() -> None:
    check_grant(["dial", "storage"], asked=())
    with pytest.raises(InputError) as caught:
        check_grant(["dial", "metrics", "zzz"], asked=["zz"])
    first, second = caught.value.problems
    assert (first.code, first.found, first.hint) == ("CONFIG_INVALID", "metrics", "did you mean 'metric'?")
    assert first.expected == ", ".join([*CAPABILITIES, "zz"])
    assert (second.found, second.hint) == ("zzz", "did you mean 'zz'?")


def test_grant_takes_the_names_that_a_build_of_the_plugin_asks_for() -> None:
    """One of another time's host asks for what allows nothing here, and is not run until it is granted."""
    check_grant(["gpu", "dial"], asked=["gpu"])


def test_command_names_everything_that_shall_be_granted() -> None:
    assert grant_command("p", "dial") == "hotbay grant p dial"
    assert grant_command("p", "dial", {"storage", "metric", "dial"}) == "hotbay grant p dial metric storage"
