"""Keeping the figures of all endpoints fresh: when each is asked, and what becomes of its pages.

`in_loop` does it on the loop of the host and `process` in a process of its own, which runs `worker`; both with the same
`collectors`, `schedule` and `metrics_source`.
"""
