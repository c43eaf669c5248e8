"""Stage 0: the host's own file, run as `python -I -S stage0.py ENVIRONMENT ENTRYPOINT` in every child.

Standard library only. Until GO arrives no code of the package runs, so what ARMED says is the host's
word. Starts fast on purpose: `posix` is built in where `os` is not, `_ctypes` costs a tenth of
`ctypes`, `_signal` is built in where `signal` imports enum, and `site` is imported while the host answers. Garbage is not
looked for while the SDK is imported, and what was imported is never looked through again: it lives as long as the
process.
"""

import _signal  # type: ignore[import-not-found]  # built in, and typeshed does without it
import gc
import posix
import sys
from _ctypes import call_function, dlopen, dlsym

PR_SET_PDEATHSIG = 1
SIGKILL = 9
SIGTERM = 15
HEADER_BYTES = 12
ARMED = 1
GO = 2


def hear_signals() -> None:
    """Undo what the host's threads blocked or ignore: a program inherits both, and would not hear that it shall stop."""
    if _signal.getsignal(SIGTERM) == _signal.SIG_IGN:
        _signal.signal(SIGTERM, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the host's main thread ends, however it ends.

    A host that died before that is told by the end of the control socket, which `wait_for_go` sees.
    """
    prctl = dlsym(dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None names the program itself, the stub omits it
    if call_function(prctl, (PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)) != 0:
        raise OSError("prctl(PR_SET_PDEATHSIG) was refused: this plugin could outlive a killed host")


def armed_frame(incarnation: str) -> bytes:
    """Return the ARMED frame: a msgpack map of the incarnation and of what was enforced (nothing at level none)."""
    name = incarnation.encode()
    body = b"\x82\xabincarnation" + bytes([0xA0 | len(name)]) + name + b"\xa8enforced\x90"
    return bytes([0xF5, ARMED, 0, 1]) + bytes(4) + len(body).to_bytes(4, "big") + body


def read_exactly(descriptor: int, count: int) -> bytes:
    """Read `count` bytes, not one more: what follows GO belongs to the SDK. End of file ends the process."""
    data = b""
    while len(data) < count:
        piece = posix.read(descriptor, count - len(data))
        if not piece:
            posix._exit(0)
        data += piece
    return data


def wait_for_go(control: int) -> None:
    """Return when the host said GO."""
    header = read_exactly(control, HEADER_BYTES)
    if header[0] != 0xF5 or header[1] != GO:
        raise RuntimeError(f"stage 0 waited for GO and got {header!r}")
    read_exactly(control, int.from_bytes(header[8:12], "big"))


def main() -> None:
    """Arm, report, wait for GO, then hand over to the package's own SDK."""
    gc.disable()
    posix.dup2(2, 1)
    hear_signals()
    die_with_parent()
    call_in, call_out, control = map(int, posix.environ[b"HOTBAY_CHANNEL"].split(b","))
    for descriptor in (call_in, call_out, control):
        # A program that the plugin starts must not hold the links open.
        posix.set_inheritable(descriptor, False)
    posix.write(control, armed_frame(posix.urandom(8).hex()))
    import site  # noqa: PLC0415 - after ARMED: its cost overlaps with the host's answer

    wait_for_go(control)
    # Output to a pipe is block-buffered by default: a print would reach the log late, and never after a kill.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a TextIOWrapper in every started interpreter
    environment, entrypoint = sys.argv[1:3]
    site.addsitedir(environment)
    from hotbay_sdk import _serve  # noqa: PLC0415 - exists from here on only, in the package's environment

    gc.freeze()
    gc.enable()
    _serve.main(entrypoint, call_in, call_out, control)


if __name__ == "__main__":
    main()
