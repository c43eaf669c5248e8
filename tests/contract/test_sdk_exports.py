"""The SDK's public names. Removing or renaming one breaks plugins: that is a decision, made by changing this list."""

import hotbay_sdk
from hotbay_sdk import _lazy

PUBLIC = [
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
MODULES = {"protocol", "testing"}
"""Public modules; importing one binds it in the package."""


def test_sdk_exports_exactly_the_frozen_list():
    assert hotbay_sdk.__all__ == PUBLIC


def test_sdk_exports_nothing_beside_its_list():
    for name in PUBLIC:
        getattr(hotbay_sdk, name)
    found = {name for name in vars(hotbay_sdk) if not name.startswith("_")}

    assert found - MODULES == set(PUBLIC)
    assert not hasattr(hotbay_sdk, "Scorers")


def test_sdk_exports_what_is_imported_later_under_the_names_of_its_modules():
    later = [name for names in _lazy.EXPORTS.values() for name in names]
    assert len(later) == len(set(later))
    assert set(later) < set(PUBLIC)
    for module, names in _lazy.EXPORTS.items():
        for name in names:
            assert getattr(hotbay_sdk, name).__module__ == f"hotbay_sdk.{module}", name


def test_sdk_documents_every_export():
    assert [name for name in PUBLIC if not getattr(hotbay_sdk, name).__doc__] == []
