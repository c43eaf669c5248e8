"""The demo's third-party parts, loaded by name.

They are not dependencies of the product, so a plain import would make the whole command line need them.
"""

from importlib import import_module
from types import ModuleType
from typing import Final

from hotbay.errors import InputError, Problem

__all__ = ["REQUIREMENTS", "load_part"]

REQUIREMENTS: Final = {"gguf": "gguf==0.19.0", "openai": "openai>=2", "xllamacpp": "xllamacpp==2026.10.11549"}
"""What to install for each module that the demo imports: the host's extra `demo`."""


def load_part(name: str) -> ModuleType:
    """Import one of REQUIREMENTS.

    Raises:
        InputError: it is not installed; the hint says how to install it.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        wanted = " ".join(f"'{requirement}'" for requirement in REQUIREMENTS.values())
        problem = Problem(
            "CONFIG_INVALID",
            f"the demo needs the Python package {name}, which is not installed",
            hint=f"Run: python -m pip install --only-binary :all: {wanted} (the host's extra `demo`)",
        )
        raise InputError([problem]) from error
