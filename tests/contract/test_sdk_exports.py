"""The SDK's public names. Removing or renaming one breaks plugins: that is a decision, made by changing this list."""

import hotbay_sdk

PUBLIC = [
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
MODULES = {"protocol", "testing"}
"""Public modules; importing one binds it in the package."""


def test_sdk_exports_exactly_the_frozen_list():
    assert hotbay_sdk.__all__ == PUBLIC


def test_sdk_exports_nothing_beside_its_list():
    found = {name for name in vars(hotbay_sdk) if not name.startswith("_")}

    assert found - MODULES == set(PUBLIC)


def test_sdk_documents_every_export():
    assert [name for name in PUBLIC if not getattr(hotbay_sdk, name).__doc__] == []
