"""Prefix-cache affinity as one plugin package: producers that tell who holds what, and scorers and filters by it.

Imports hotbay_sdk, msgpack and the standard library only, and pyzmq where engines' events are asked for.
"""

from hotbay_prefix_cache import affinity, approx, burst, cold, p2p, precise, scorer
from hotbay_prefix_cache.package import plugin

__all__ = ["affinity", "approx", "burst", "cold", "p2p", "plugin", "precise", "scorer"]
