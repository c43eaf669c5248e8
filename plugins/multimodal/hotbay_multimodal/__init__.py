"""Where images, audio and video are cached as embeddings, as one plugin package.

Imports hotbay_sdk only.
"""

from hotbay_multimodal.types import plugin

__all__ = ["plugin"]
