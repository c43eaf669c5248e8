"""Places that offer packages. A source finds and checks; it neither stores nor starts anything.

Import rule: hotbay.packages, hotbay.store, hotbay.errors, anyio, httpx, pydantic, watchfiles. Sources do not import each other.
"""
