"""Filters and scorers of what discovery says of endpoints, as one plugin package: labels, roles, places, addresses.

Imports hotbay_sdk and numpy only. `authorities`, `places`, `ranges` and `selectors` are pure; `label_tables` reads side
tables, once for each different value; the other modules fit these to calls.
"""

from hotbay_labels import context_length, header_label, header_selection, label_filters, topology  # each adds its types
from hotbay_labels.package import plugin

__all__ = ["context_length", "header_label", "header_selection", "label_filters", "plugin", "topology"]
