"""The seam of isolation levels."""

import logging

import pytest
from hotbay.errors import PluginFault
from hotbay.process.isolation import NoIsolation, find_level
from hotbay.process.launch import STAGE0, LaunchSpec

SPEC = LaunchSpec("python", STAGE0, "/env", "m:a", "/tmp", "none", "standard#1")


def test_none_warns_once_and_changes_nothing(caplog):
    level = NoIsolation()
    assert level.wrap(("a", "b"), SPEC) == ("a", "b")
    assert level.wrap(("a", "b"), SPEC) == ("a", "b")
    assert level.claims() == ()
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "NO ISOLATION" in warnings[0].getMessage()


@pytest.mark.parametrize("name", ["strict", "standard", "", "NONE"])
def test_other_level_is_refused_with_what_to_use(name):
    with pytest.raises(PluginFault) as caught:
        find_level(name)
    assert caught.value.code == "REFUSED_ISOLATION"
    assert "none" in caught.value.hint
