"""The wheel that is written by hand is one that the host takes."""

from pathlib import Path

from hotbay.packages.archive import screen_wheel

from benchmarks.packages import _write_wheel


def test_written_wheel_is_accepted_and_reproducible(tmp_path: Path):
    first = _write_wheel(tmp_path / "a", "hotbay_bench_echo", b"plugin = None\n")
    second = _write_wheel(tmp_path / "b", "hotbay_bench_echo", b"plugin = None\n")

    facts = screen_wheel(first, first.name)

    assert facts.distribution == "hotbay-bench-echo"
    assert facts.has_module("hotbay_bench_echo")
    assert first.read_bytes() == second.read_bytes()
