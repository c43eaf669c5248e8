"""What brings data of endpoints, and what turns it into attributes: sources, extractors, and the tasks that run them.

Import rule: `source` states the contracts and is pure; the others may import it, the pure modules of `hotbay.datalayer`, its
clients, anyio, ssl, and `hotbay.config` with its shell. Nothing here imports discovery.
"""
