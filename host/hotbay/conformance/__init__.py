"""Conformance: drives any executable through the rules of the wire protocol, from the host's end.

Import rule: may import `hotbay.errors`, `hotbay.process` and `hotbay_sdk.protocol`; nothing else of hotbay, so that
what is judged is the protocol and not this host's use of it.
"""
