"""What is known about the model servers: discovery, scraping, the store and its snapshots.

Import rule: `endpoint`, `ledger`, `store`, `snapshot`, `exposition`, `engines`, `extraction` and `endpoint_documents`
are pure and import only each other, numpy, the fault tree, `hotbay.config` without its shell, and
`hotbay_sdk.protocol`; `metrics_client`, `scrape` and `discovery` are the shells and may import anyio, asyncio,
httptools and `hotbay.config.reload`. Nothing here imports scheduling, gateway, rollout, process, packages or rpc.
"""
