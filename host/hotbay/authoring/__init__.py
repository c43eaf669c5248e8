"""Tools for authors of plugins: a project to begin with, and one process to call.

Import rule: may import `hotbay.config`, `hotbay.packages`, `hotbay.process`, `hotbay.rollout`, `hotbay.rpc`,
`hotbay.scheduling` and what these may; never `hotbay.app`, `hotbay.gateway` or `hotbay.conformance`.
"""
