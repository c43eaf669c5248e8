"""Saturation detectors, and the policies of requests that wait, as one plugin package.

Imports hotbay_sdk and numpy only.
"""

from hotbay_flow_control import concurrency, eviction, fairness, ordering, usage_limits, utilization
from hotbay_flow_control.package import plugin

__all__ = ["concurrency", "eviction", "fairness", "ordering", "plugin", "usage_limits", "utilization"]
