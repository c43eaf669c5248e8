"""Packages: what they are, how they are built, found, fetched, checked and turned into an environment.

Import rule: hotbay.errors, hotbay.store, `hotbay.config.documents` (references are YAML), `PROTOCOL_VERSION` of
hotbay_sdk.protocol, pydantic, packaging; tools (uv, pip) run through anyio. `manifest`, `project`, `drip` and `ref_changes`
are pure, `archive` but for the file that it is given; `layout`, `bundled`, `tree`, `project_copy` and `project_folder` block;
`ref_watch` writes what sources show into the world, `fetch` makes a package runnable. Nothing here imports process, rollout
or scheduling.
"""
