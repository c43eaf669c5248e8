"""Extractors, sources and discoveries that plugin processes provide, whichever version of them is live.

Import rule: `results`, `budget`, `framing`, `records`, `object_records`, `wire_events` and `succession` are pure and import
only the pure modules of `hotbay.datalayer` and `hotbay.config`, the fault tree and `hotbay_sdk.protocol`; the others may
import them, anyio, and of rpc `client`, `leases` and `allowance`.
"""
