"""What a plugin process is started with: its LaunchSpec, its command line and its environment.

Pure. The environment is built from empty, so nothing of the host's own reaches a plugin; the fixed
names of it win over granted ones, because the channel's descriptors are the host's to tell.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

STAGE0: Final = str(Path(__file__).with_name("stage0.py"))
"""The file that runs first in every child."""

_FIXED_ENVIRONMENT: Final = (
    ("LANG", "C.UTF-8"),
    ("PATH", "/usr/bin"),
    ("TMPDIR", "/tmp"),  # noqa: S108 - the plugin's own TMPDIR, by contract; the host puts no file there
    # One thread each: many plugins share the machine, and numeric libraries start a thread per core otherwise.
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
)


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """All that decides how one plugin process starts; equal specs start equal processes.

    `environment` is the directory with the package's wheels, `entrypoint` reads `module:attribute`,
    `label` names the process in logs (`standard#7`). `argv`, if given, is run in the place of Python and stage 0: a
    program in any language that speaks the protocol from HELLO on; it undoes blocked signals itself. `record_in`, if
    given, is the folder in which the host keeps its records of running processes (see `process.leftovers`).
    """

    interpreter: str
    stage0: str
    environment: str
    entrypoint: str
    working_directory: str
    level: str
    label: str
    extra_environment: tuple[tuple[str, str], ...] = ()
    argv: tuple[str, ...] = ()
    record_in: str = ""
    arm_timeout_s: float = 5.0
    hello_timeout_s: float = 5.0
    ready_timeout_s: float = 30.0
    grace_s: float = 2.0


class ChannelDescriptors(NamedTuple):
    """The child's ends of its links, by the numbers that they have in the child."""

    call_in: int
    call_out: int
    control: int


def command(spec: LaunchSpec) -> tuple[str, ...]:
    """Return the command line, before an isolation level wraps it.

    `-S` because a `.pth` of the package would otherwise run before stage 0 has armed anything. The label is for people
    who look at the machine's processes.
    """
    if spec.argv:
        return spec.argv
    return (spec.interpreter, "-I", "-S", spec.stage0, spec.environment, spec.entrypoint, spec.label)


def environment(spec: LaunchSpec, channel: ChannelDescriptors) -> dict[str, str]:
    """Return the child's whole environment: granted names, then the fixed ones over them."""
    return {
        **dict(spec.extra_environment),
        **dict(_FIXED_ENVIRONMENT),
        "HOTBAY_CHANNEL": ",".join(map(str, channel)),
    }
