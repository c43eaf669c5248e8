"""Linear regression that learns one observation at a time and forgets old ones. Pure.

Ridge regression over exponentially weighted sums: A = f A + x x', b = f b + x y, and the weights solve (A + ridge I) w = b. So
what was learned last counts most, and what the data does not determine stays near 0. Sums are kept rather than an inverse: with
forgetting, an inverse that is updated in place grows without bound where the data does not vary.
Invariant: sums hold finite numbers only.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

FORGETTING: Final = 0.998
"""Each observation counts half as much after 346 more: minutes of traffic, in which fleets change."""
RIDGE: Final = 1e-3
"""Of features of about 1: only what the data leaves open feels it."""
MIN_OBSERVATIONS: Final = 32
"""Four for each weight: before that, predictions would be noise."""
MAX_TARGET_MS: Final = 3_600_000.0
"""An hour: what takes longer says nothing of the next request."""


class Regression:
    """One target, of `width` features, in milliseconds."""

    def __init__(self, width: int) -> None:
        self._sums = np.zeros((width, width))
        self._products = np.zeros(width)
        self._weights: Floats = self._products
        self._stale = False
        self.observations = 0

    @classmethod
    def of(cls, observations: int, sums: Floats, products: Floats) -> "Regression":
        """One that has learned already; see `learned`."""
        model = cls(len(products))
        model._sums, model._products = sums, products
        model._stale, model.observations = True, observations
        return model

    @property
    def learned(self) -> tuple[Floats, Floats]:
        """A and b: everything that it knows besides the number of observations."""
        return self._sums, self._products

    @property
    def cold(self) -> bool:
        """Whether there is too little to predict from."""
        return self.observations < MIN_OBSERVATIONS

    def learn(self, features: Floats, target_ms: float) -> bool:
        """Take one observation; false for one that is not finite, negative or beyond an hour, which is left out."""
        if not (np.isfinite(features).all() and 0 <= target_ms <= MAX_TARGET_MS):
            return False
        self._sums = FORGETTING * self._sums + np.outer(features, features)
        self._products = FORGETTING * self._products + features * target_ms
        self._stale = True
        self.observations += 1
        return True

    def predict(self, features: Floats) -> Floats:
        """Milliseconds for each row of features, from 0 up; NaN while cold, and for rows with what is not finite."""
        if self.cold:
            return np.full(len(features), np.nan)
        with np.errstate(invalid="ignore"):
            predicted: Floats = np.maximum(features @ self.weights, 0.0)
        predicted[~np.isfinite(features).all(axis=1)] = np.nan
        return predicted

    @property
    def weights(self) -> Floats:
        """What one unit of each feature costs."""
        if self._stale:
            ridge = RIDGE * np.eye(len(self._products))
            self._weights = np.asarray(np.linalg.solve(self._sums + ridge, self._products), np.float64)
            self._stale = False
        return self._weights
