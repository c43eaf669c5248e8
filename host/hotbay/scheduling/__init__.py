"""Decides which endpoint answers a request: registry, plan, cycle, built-ins, and calls to plugins.

May import: hotbay.config (values), hotbay.datalayer (snapshot), hotbay.rpc, hotbay.errors. No IO here but
what `remote` does through an rpc client.
"""
