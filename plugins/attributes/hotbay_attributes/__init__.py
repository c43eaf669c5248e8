"""Filters and a scorer of figures of endpoints that the operator names, as one plugin package.

Imports hotbay_sdk and numpy only. `figures` and `parameters` are pure.
"""

from hotbay_attributes import attribute_types, utilization  # each adds its types
from hotbay_attributes.package import plugin

__all__ = ["attribute_types", "plugin", "utilization"]
