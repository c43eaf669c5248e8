"""How an endpoint that is new, or back, comes to its full share: a straight line over a window. Pure.

The form is that of Envoy's slow start (`SlowStartConfig`: `slow_start_window`, `aggression` 1, `min_weight_percent` 10): the
first requests come at once, at a tenth of the share, because an endpoint that gets nothing warms nothing up.
"""

from typing import Final

__all__ = ["FIRST_SHARE", "STEPS", "ramp"]

FIRST_SHARE: Final = 0.1
"""Of the full share, at the beginning: Envoy's `min_weight_percent`."""

STEPS: Final = 32
"""The line has so many steps: a share that moved with every look would make every publication another one."""


def ramp(age_s: float, window_s: float) -> float:
    """The share of an endpoint that has taken requests for `age_s` seconds, from FIRST_SHARE to 1.

    It never falls as `age_s` grows, and is 1 from `window_s` on; a window of 0 or less ramps nothing.
    """
    if window_s <= 0 or age_s >= window_s:
        return 1.0
    step = int(max(age_s, 0.0) / window_s * STEPS)
    return max(FIRST_SHARE, step / STEPS)
