"""Which version of each plugin runs, and how one replaces another under load.

`selection` and `backoff` are pure. `supervisor` is the only owner of instances. May import:
hotbay.config, hotbay.packages, hotbay.store, hotbay.process, hotbay.rpc, hotbay.scheduling, hotbay.errors.
"""
