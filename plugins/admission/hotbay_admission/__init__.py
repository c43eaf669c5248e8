"""Admitters that look at the load of engines, as one plugin package.

Imports hotbay_sdk and numpy only.
"""

from hotbay_admission.probabilistic import plugin

__all__ = ["plugin"]
