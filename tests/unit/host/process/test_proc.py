"""What /proc says of a process is read right, whatever the process calls itself."""

import os

import pytest
from hotbay.process.proc import machine, parse_stat, read_stat, variable
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.integers(0, 2**63)


@given(st.text(max_size=16), NUMBERS, NUMBERS, NUMBERS)
def test_every_name_is_read_past(name, parent, session, start):
    fields = ["S", parent, 0, session, *([0] * 15), start, 1, 2]
    found = parse_stat(f"1234 ({name}) " + " ".join(map(str, fields)))
    assert found is not None
    assert (found.state, found.parent, found.session, found.start_ticks) == ("S", parent, session, start)


@given(st.text())
def test_no_text_raises(text):
    assert parse_stat(text) is None or ")" in text or len(text.split()) >= 20


@pytest.mark.parametrize("fields", [19, 20])
def test_line_that_is_cut_off_is_nothing(fields):
    assert (parse_stat("1 (a) S " + " ".join(["7"] * (fields - 1))) is None) is (fields < 20)


def test_own_process_is_found():
    found = read_stat(os.getpid())
    assert found is not None
    assert (found.parent, found.session) == (os.getppid(), os.getsid(0))


def test_process_that_is_gone_is_nothing():
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    assert read_stat(pid) is None
    assert variable(pid, "PATH") is None


def test_machine_names_boot_and_namespace():
    boot, namespace = machine().split()
    assert len(boot) == 36
    assert namespace.startswith("pid:[")
