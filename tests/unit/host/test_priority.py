"""Which processes may be lowered: those that can be raised again."""

import resource

import pytest
from hotbay.priority import may_raise

CAP_SYS_NICE = 1 << 23


@pytest.mark.parametrize(
    ("niceness", "limit", "capabilities", "expected"),
    [
        (0, 0, 0, False),
        (0, 19, 0, False),
        (0, 20, 0, True),
        (5, 14, 0, False),
        (5, 15, 0, True),
        (-5, 24, 0, False),
        (-5, 25, 0, True),
        (0, resource.RLIM_INFINITY, 0, True),
        (0, 0, CAP_SYS_NICE, True),
        (0, 0, ~CAP_SYS_NICE, False),
    ],
)
def test_a_limit_or_the_right_allows_it(niceness, limit, capabilities, expected):
    assert may_raise(niceness, limit, capabilities) is expected
