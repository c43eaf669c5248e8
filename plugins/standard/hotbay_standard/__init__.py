"""Scorers of load, as one plugin package: what engines report of themselves, and what the host has sent to them.

Imports hotbay_sdk and numpy only. `formulas` is pure; the other modules fit it to calls.
"""

from hotbay_standard import engine_scorers, in_flight_scorers  # each adds its types
from hotbay_standard.package import plugin

__all__ = ["engine_scorers", "in_flight_scorers", "plugin"]
