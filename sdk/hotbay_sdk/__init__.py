"""What plugin authors use: extension points, views, and the `Plugin` that holds a package's types.

Imports the standard library and msgpack only, and of the standard library little: a plugin's start
is measured, so extension points that few packages answer are imported with the first use of their names. Everything not in
`__all__` is private but `hotbay_sdk.protocol`, which the host shares, and `hotbay_sdk.testing`.
"""

from hotbay_sdk import _lazy
from hotbay_sdk._context import Context, Logger
from hotbay_sdk._errors import HostCallError, ParameterError, UndeclaredReadError
from hotbay_sdk._plugin import Plugin
from hotbay_sdk._points import (
    DataProducer,
    Edits,
    Filter,
    PickedTargets,
    Picker,
    PreRequest,
    ProfileHandler,
    Scorer,
)
from hotbay_sdk._views import Endpoint, Endpoints, Request, ScoredEndpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hotbay_sdk._data_points import (
        Discovery,
        DiscoveryNotifier,
        EventExtractor,
        Extractor,
        NotificationSource,
        ObjectNotifier,
        PollingSource,
        WatchSource,
    )
    from hotbay_sdk._flow_points import (
        Band,
        EvictionFilterPolicy,
        EvictionOrderingPolicy,
        FairnessPolicy,
        Flow,
        InFlightRequest,
        OrderingPolicy,
        QueuedRequest,
        UsageLimitPolicy,
    )
    from hotbay_sdk._request_points import (
        Admitter,
        Denial,
        ParsedRequest,
        Parser,
        RequestHeaderProcessor,
        ResponseBodyProcessor,
        ResponseHeaderProcessor,
        SaturationDetector,
        Screener,
        StateDumper,
    )
    from hotbay_sdk._responses import Response
else:

    def __getattr__(name):
        """Import what is exported and not there yet."""
        found = globals()[name] = _lazy.exported(__name__, name)
        return found


del TYPE_CHECKING
__all__ = [
    "Admitter",
    "Band",
    "Context",
    "DataProducer",
    "Denial",
    "Discovery",
    "DiscoveryNotifier",
    "Edits",
    "Endpoint",
    "Endpoints",
    "EventExtractor",
    "EvictionFilterPolicy",
    "EvictionOrderingPolicy",
    "Extractor",
    "FairnessPolicy",
    "Filter",
    "Flow",
    "HostCallError",
    "InFlightRequest",
    "Logger",
    "NotificationSource",
    "ObjectNotifier",
    "OrderingPolicy",
    "ParameterError",
    "ParsedRequest",
    "Parser",
    "PickedTargets",
    "Picker",
    "Plugin",
    "PollingSource",
    "PreRequest",
    "ProfileHandler",
    "QueuedRequest",
    "Request",
    "RequestHeaderProcessor",
    "Response",
    "ResponseBodyProcessor",
    "ResponseHeaderProcessor",
    "SaturationDetector",
    "ScoredEndpoint",
    "Scorer",
    "Screener",
    "StateDumper",
    "UndeclaredReadError",
    "UsageLimitPolicy",
    "WatchSource",
]
