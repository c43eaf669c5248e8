"""Finding model servers: feeds that name them, and the one set that their words make.

`discovery` runs `feed`s, each a run after the other of an `EndpointDiscovery` (see `notifier`): `static`, `file`, `dns`,
`http_sd`, or one that a plugin's process provides. `session`, `allowed` and `membership` decide, and are pure; so are `places`,
`dns_endpoints` and `service_documents`, which turn answers into endpoints. `plans` is where a configuration becomes
something to run.

Import rule: the pure modules import each other, the datalayer's values, `hotbay.config` without its shell, and the fault
tree; the others also anyio, `hotbay.observe.background`, `hotbay.config.reload`, and the TLS contexts and credentials of
`hotbay.datalayer.fetching`; `dns` alone imports dnspython, and nobody imports `dns`: `dns_later` loads it by name;
`http_sd` alone imports httpx.
"""
