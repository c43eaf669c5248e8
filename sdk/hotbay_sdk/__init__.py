"""What plugin authors use: extension points, views, and the `Plugin` that holds a package's types.

Imports the standard library and msgpack only, and of the standard library little: a plugin's start
is measured. Everything not in `__all__` is private but `hotbay_sdk.protocol`, which the host shares,
and `hotbay_sdk.testing`.
"""

from hotbay_sdk._context import Context, Logger
from hotbay_sdk._errors import HostCallError, ParameterError, UndeclaredReadError
from hotbay_sdk._plugin import Plugin
from hotbay_sdk._points import (
    DataProducer,
    Discovery,
    DiscoveryNotifier,
    EventExtractor,
    Extractor,
    Filter,
    NotificationSource,
    ObjectNotifier,
    Picker,
    PollingSource,
    PreRequest,
    ProfileHandler,
    Scorer,
    WatchSource,
)
from hotbay_sdk._views import Endpoint, Endpoints, Request, ScoredEndpoint

__all__ = [
    "Context",
    "DataProducer",
    "Discovery",
    "DiscoveryNotifier",
    "Endpoint",
    "Endpoints",
    "EventExtractor",
    "Extractor",
    "Filter",
    "HostCallError",
    "Logger",
    "NotificationSource",
    "ObjectNotifier",
    "ParameterError",
    "Picker",
    "Plugin",
    "PollingSource",
    "PreRequest",
    "ProfileHandler",
    "Request",
    "ScoredEndpoint",
    "Scorer",
    "UndeclaredReadError",
    "WatchSource",
]
