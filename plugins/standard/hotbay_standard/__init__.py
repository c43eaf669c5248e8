"""Scorers of engine load, as one plugin package: waiting requests, running requests, KV cache in use.

Imports hotbay_sdk and numpy only.
"""

from hotbay_standard.scorers import plugin

__all__ = ["plugin"]
