"""What a prediction is made of, for every endpoint at once. Pure.

Figures that an engine did not report make their row NaN, of which nothing is predicted. Scales bring every feature to about 1.
"""

from typing import Final

import numpy as np

from hotbay_latency.regression import Floats

LOAD_COLUMNS: Final = ("endpoint.running", "endpoint.waiting", "endpoint.kv_usage", "endpoint.in_flight")
_LOAD_SCALES: Final = np.array([1 / 16, 1 / 16, 1.0, 1 / 16])
_TOKEN_SCALE: Final = 1 / 1024
NAMES: Final = (
    "constant",
    "running",
    "waiting",
    "kv_usage",
    "in_flight",
    "prompt_tokens",
    "uncached_tokens",
    "crowded_tokens",
)
"""`crowded_tokens`: uncached tokens x running requests, since a batch computes them beside its other work."""
WIDTH: Final = len(NAMES)


def scaled_load(columns: list[Floats]) -> Floats:
    """E rows of the four load figures, NaN for what is not known."""
    load: Floats = np.stack(columns, axis=1)
    load[load < 0] = np.nan
    scaled: Floats = load * _LOAD_SCALES
    return scaled


def uncached_tokens(prompt_tokens: float, matched_blocks: Floats, block_tokens: float) -> Floats:
    """Tokens of the prompt that each endpoint has to compute: all of them where nothing is known of its cache."""
    cached = matched_blocks * block_tokens
    rest: Floats = prompt_tokens - np.where(np.isfinite(cached), cached, 0.0)
    return np.clip(rest, 0.0, prompt_tokens)


def feature_rows(load: Floats, prompt_tokens: float, uncached: Floats) -> Floats:
    """E rows of `NAMES`."""
    rows = np.empty((len(load), WIDTH))
    rows[:, 0] = 1.0
    rows[:, 1:5] = load
    rows[:, 5] = prompt_tokens * _TOKEN_SCALE
    rows[:, 6] = uncached * _TOKEN_SCALE
    rows[:, 7] = rows[:, 6] * load[:, 0]
    return rows
