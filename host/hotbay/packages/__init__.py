"""Packages: what they are, how they are built, found, checked and turned into an environment.

Import rule: hotbay.errors, hotbay.store, `PROTOCOL_VERSION` of hotbay_sdk.protocol, pydantic, packaging; tools (uv, pip)
run through anyio. `manifest`, `project` and `archive` are pure but for the file that they are given; `layout`, `bundled`,
`project_copy` and `project_folder` block; `lock`, `pack`, `environment`, `staging` and `sources` are the shells. Nothing here imports config, process, rollout or scheduling.
"""
