"""Private memory as the kernel tells it."""

from benchmarks.figures.start import private_mb

ROLLUP = """\
5581f0a00000-7ffd0b5fe000 ---p 00000000 00:00 0                          [rollup]
Rss:               10000 kB
Shared_Clean:       5000 kB
Private_Clean:      1000 kB
Private_Dirty:      4000 kB
Swap:                  0 kB
"""


def test_private_mb_adds_clean_and_dirty_pages_in_decimal_megabytes():
    assert private_mb(ROLLUP) == 5.12
