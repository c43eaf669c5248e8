"""The package's plugin, to which the modules of types add theirs."""

from hotbay_sdk import Plugin

plugin = Plugin("standard")
