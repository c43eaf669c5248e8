"""Affinity of requests to endpoints that have their LoRA adapter, as one plugin package.

Imports hotbay_sdk and numpy only. `adapters` is pure.
"""

from hotbay_lora.scorer import plugin

__all__ = ["plugin"]
