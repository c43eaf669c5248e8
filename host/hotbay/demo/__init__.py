"""What `hotbay demo` brings with it: real model servers with a generated model, and load for them.

Import rule: only the command line imports this folder. It may import anyio, numpy and the fault tree; `gguf` and
`xllamacpp` are not dependencies of the product and come in through `parts` alone. `llama_server` runs as a script of
its own and imports nothing of hotbay but `parts`.
"""
