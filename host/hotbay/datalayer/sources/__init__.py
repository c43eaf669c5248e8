"""What brings data of endpoints, and what turns it into attributes: sources, extractors, and the tasks that run them.

`registrar` decides which extractor stands behind which source, `bindings` keeps it so as configurations and versions come and go,
and `builtin` makes what the host has itself. Each source that runs is a `SourceRun` of `runs` or `scraped`.

Import rule: `registrar`, `owners`, `object_form` and `waiting` are pure; the others may import the pure modules of `hotbay.datalayer`, its clients,
anyio, ssl, and `hotbay.config` with its shell. Nothing here imports discovery.
"""
