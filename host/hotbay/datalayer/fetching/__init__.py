"""Kept-alive connections to model servers: one request, one whole and bounded answer, or the reason why there is none.

`tls` and `credentials` are files that connections and requests are made with, followed as they change.
"""
