"""What is known about the model servers. Here is what all parts of it share; each part has a folder.

`endpoint` is a server and its last figures, `attributes` what plugins know of it beyond them, `store` the owner of all of
it, and `ledger` counts what is in flight; `source` states what a source and an extractor are. `discovery` names the
servers; `sources` say what is asked of them and what is made of the answers; `remote` does both in plugin processes.
`scraping` asks for metrics over `fetching`'s connections, and `pages` reads them. `tables` is what scheduling and plugins
see, `health` who can be used, `operations` what operators do.

Import rule: the modules that the contract `pure` of pyproject.toml names, and `discovery.endpoint_documents`, are pure and
import only each other, numpy, the fault tree, `hotbay.config` without its shell, and `hotbay_sdk.protocol`; the others are
shells and may import anyio, asyncio, ssl, `hotbay.resolving` and `hotbay.config.reload`. `discovery`, `sources` and `remote`
state more of their own; `remote` alone imports rpc. Nothing here imports scheduling, gateway, rollout, process or packages.
"""
