"""Predicted latency, and what decides by it, as one plugin package.

Imports hotbay_sdk and numpy only.
"""

from hotbay_latency import admitter, headroom_filter, producer, scorer
from hotbay_latency.package import plugin

__all__ = ["admitter", "headroom_filter", "plugin", "producer", "scorer"]
