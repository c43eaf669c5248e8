"""Importable wherever the SDK and its one dependency are."""

import hotbay_sdk
import msgpack

plugin = (hotbay_sdk.__name__, msgpack.packb("echo"))
