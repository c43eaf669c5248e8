"""Checks that an environment holds a manifest's entry point, before any process of it is started.

The module is found as the interpreter would find it and read, never run: a separate process parses it, because text
that was made for it can end a parser. A name that is only made at run time cannot be seen; a module that could make
any (a star import, `__getattr__`, compiled code) is taken at its word.
"""

from pathlib import Path
from typing import Final

from hotbay.errors import PackageError
from hotbay.packages.manifest import Manifest
from hotbay.packages.tools import run_tool

_TIMEOUT_S: Final = 30.0
_FOUND: Final = "found"

# Arguments: the folder, the module, the attribute. Prints one line.
_LOOK: Final = r"""
import ast, importlib.machinery as machinery, pathlib, symtable, sys

site, module, attribute = sys.argv[1:]
*packages, last = module.split(".")
folder = pathlib.Path(site).joinpath(*packages)
endings = [*machinery.EXTENSION_SUFFIXES, ".py"]
names = [f"{last}/__init__{end}" for end in endings] + [last + end for end in endings]
found = next((folder / name for name in names if (folder / name).is_file()), None)
if found is None:
    sys.exit(print("no module " + module))
if found.suffix != ".py":
    sys.exit(print("found"))
try:
    text = found.read_bytes()
    tree, table = ast.parse(text), symtable.symtable(text.decode("utf-8", "replace"), "module", "exec")
except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
    sys.exit(print(f"module {module} does not parse: {error}"[:500]))
name = attribute.split(".")[0]
stars = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree))
known = set(table.get_identifiers())
bound = name in known and (lambda s: s.is_assigned() or s.is_imported() or s.is_namespace())(table.lookup(name))
declared = any(isinstance(node, ast.Global) and name in node.names for node in ast.walk(tree))
late = any(isinstance(node, ast.Name) and node.id in ("globals", "setattr", "exec") for node in ast.walk(tree))
is_there = bound or stars or declared or late or "__getattr__" in known
print("found" if is_there else f"module {module} defines no {name}")
"""

__all__ = ["check_entry_point"]


async def check_entry_point(manifest: Manifest, interpreter: str, site: Path) -> None:
    """Raises `PackageError` INVALID_PACKAGE naming what was looked for; CapacityError when looking takes too long."""
    module, _, attribute = manifest.entrypoint.partition(":")
    command = [interpreter, "-I", "-S", "-c", _LOOK, str(site), module, attribute]
    result = await run_tool(command, timeout_s=_TIMEOUT_S)
    answer = result.last_lines.strip()
    if result.code == 0 and answer == _FOUND:
        return
    reason = answer if result.code == 0 else f"module {module} cannot be read"
    raise PackageError(
        "INVALID_PACKAGE",
        f"{manifest.id} {manifest.version} (rev {manifest.rev}): entry point {manifest.entrypoint} is not there: {reason}",
        hint="Correct `entrypoint` in the plugin's pyproject.toml and publish under a higher rev.",
        details={"digest": manifest.digest, "entrypoint": manifest.entrypoint},
    )
