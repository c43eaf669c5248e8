"""Calls to plugin processes. May import: hotbay.errors, hotbay.process, hotbay_sdk.protocol."""
