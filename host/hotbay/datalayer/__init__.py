"""What is known about the model servers: discovery, scraping, the store and its snapshots.

Import rule: the modules that the contract `pure` of pyproject.toml names, and `endpoint_documents`, are pure and import
only each other, numpy, the fault tree, `hotbay.config` without its shell, and `hotbay_sdk.protocol`; the others are shells
and may import anyio, asyncio, ssl and `hotbay.config.reload`. `sources` states its own rule. `remote` alone imports rpc, of which it may import
`client`, `leases` and `allowance`. Nothing here imports scheduling, gateway, rollout, process or packages.
"""
