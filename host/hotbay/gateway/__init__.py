"""The front doors: an OpenAI-compatible streaming reverse proxy, `/pick` for other proxies, and the operator's socket.

Import rule: `limits`, `outcome`, `answers`, `head`, `header_edits`, `request_reader`, `response_reader`, `routes`, `inference`,
`usage`, `pick`, `request_ids` and the folder `parsers` are pure and import only each other, httptools, orjson, the fault tree,
`hotbay_sdk.protocol.verdicts`, `hotbay.scheduling.{request,prompts,decision,response_facts}` and `hotbay.datalayer.endpoint`. `upstream`,
`pool`, `turn`, `attempt`, `choice`, `outgoing`, `relay`, `listening`, `upstreams`, `exchange`, `directing`, `reading`, `picking`,
`dispatch`, `server` and `http` are the shells; they may import asyncio, `hotbay.observe.metrics`, `hotbay.models.rules` and
`hotbay.resolving` besides. `admin_routes` and `admin_errors` are pure, `admin_operations` is a Protocol, `admin_socket`,
`admin_peer` and `admin` are the shell of the operator's socket, over anyio. Nothing here imports rpc, process, rollout or
packages: the scheduler and the ledger come in as the Protocols of `seams`.
"""
