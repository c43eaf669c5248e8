"""One llama.cpp server in a process of its own: run as a script, prints one JSON line when it listens.

The line is `{"url": …, "pid": …}`. SIGTERM ends it at once; so does the death of the process that started it.
"""

import argparse
import ctypes
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final

from hotbay.demo.parts import load_part

__all__ = ["main"]

HTTP_THREADS: Final = 96
"""llama.cpp spends one per open connection and drops further ones: idle kept-alive ones count too."""

_PR_SET_PDEATHSIG: Final = 1


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="llama_server", description=__doc__)
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--alias", required=True, help="name in /v1/models")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True, help="process whose death ends this one")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--slot-context", type=int, default=4096, help="tokens per slot")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--nice", type=int, default=0, help="how far it gives way to other processes")
    return parser.parse_args(argv)


def _parameters(library: Any, arguments: argparse.Namespace) -> Any:
    parameters = library.CommonParams()
    parameters.model.path = arguments.model
    parameters.model_alias = {arguments.alias}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = arguments.port
    parameters.n_parallel = arguments.slots
    parameters.n_ctx = arguments.slots * arguments.slot_context
    parameters.n_threads_http = HTTP_THREADS
    # More threads than free cores make ggml's spin barriers eat what they should speed up.
    parameters.cpuparams.n_threads = arguments.threads
    parameters.cpuparams_batch.n_threads = arguments.threads
    parameters.endpoint_metrics = True
    parameters.endpoint_slots = True
    parameters.offline = True
    parameters.warmup = False
    # Fitting parameters to device memory loads the model once more; there is no device.
    parameters.fit_params = False
    parameters.verbosity = 0
    return parameters


def _die_with(parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main(argv: Sequence[str]) -> None:
    """Serve until a signal comes. Does not return: the library's threads would hold up a normal exit."""
    arguments = _arguments(argv)
    _die_with(arguments.parent)
    os.nice(arguments.nice)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    library = load_part("xllamacpp")
    server = library.Server(_parameters(library, arguments))
    sys.stdout.write(json.dumps({"url": server.listening_address, "pid": os.getpid()}) + "\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
