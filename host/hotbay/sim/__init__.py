"""A simulated vLLM server: its HTTP routes, its scheduler, its caches and its metrics; no model.

Tests, demonstrations and benchmarks stand many of them behind a host, where real model servers would need a machine each.

Import rule: `timing`, `blocks`, `adapters`, `engine`, `statistics`, `prompts`, `replies`, `asking`, `answers`, `page` and
`fitting` are pure; `clock`, `connection`, `server` and `measuring` do IO. Nothing here starts a process or speaks to a
terminal.
"""
