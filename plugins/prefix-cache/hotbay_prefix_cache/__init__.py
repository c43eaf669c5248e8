"""Prefix-cache affinity as one plugin package: a producer that learns who holds what, and a scorer of it.

Imports hotbay_sdk and the standard library only.
"""

from hotbay_prefix_cache.types import plugin

__all__ = ["plugin"]
