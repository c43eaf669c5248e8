"""Kept-alive connections to model servers: one request, one whole and bounded answer, or the reason why there is none."""
