"""Sessions as one plugin package: whose a request is, and to which endpoint the session's requests went before.

Imports hotbay_sdk and the standard library only.
"""

from hotbay_session import affinity, identity
from hotbay_session.package import plugin

__all__ = ["affinity", "identity", "plugin"]
