"""What `hotbay demo` brings with it: real model servers with a generated model, load for them, and a show of both.

Import rule: only the command line imports this folder. It may import anyio, numpy, click, rich, the fault tree, the
reader of metrics pages and where the bundled packages lie; the host itself runs as a process of its own. `gguf`, `openai`
and `xllamacpp` are not dependencies of the product and come in through `parts` alone. `llama_server` and `tether` run
as scripts of their own; the first imports nothing of hotbay but `parts`, the second nothing. Pure are `configuration`,
`gauges`, `record`, `report`, `timeline`, `trace` and `workload`.
"""
