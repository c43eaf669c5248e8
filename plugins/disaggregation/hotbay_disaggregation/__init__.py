"""Prefill, decode and encode on separate servers, as one plugin package: stages, deciders, headers.

Imports hotbay_sdk only.
"""

from hotbay_disaggregation import deciders, handlers, header_setters
from hotbay_disaggregation.package import plugin

__all__ = ["deciders", "handlers", "header_setters", "plugin"]
