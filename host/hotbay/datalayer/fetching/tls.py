"""Makes the TLS contexts of sources that fetch from endpoints. Blocks on the disk: call it in a thread, at the start."""

import ssl
from pathlib import Path

from hotbay.config.data_parameters import Tls
from hotbay.errors import InputError, Place, Problem

__all__ = ["absolute", "client_context"]


def client_context(tls: Tls, directory: Path) -> ssl.SSLContext:
    """A context for connections to endpoints; relative paths are relative to `directory`.

    Raises:
        InputError: a file cannot be read, or is not what it should be.
    """
    # TLS 1.2 is the least that it allows.
    context = ssl.create_default_context()
    if tls.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca_cert_path:
        authorities = directory / tls.ca_cert_path
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cafile=authorities)
        except (OSError, ssl.SSLError) as error:
            raise _unusable(authorities, "certificates of authorities", error) from error
    if tls.client_cert_path:
        certificate, key = directory / tls.client_cert_path, directory / tls.client_key_path
        try:
            # Without the empty password an encrypted key would be asked for on the terminal.
            context.load_cert_chain(certificate, key, password="")
        except (OSError, ssl.SSLError) as error:
            missing = next((path for path in (certificate, key) if not path.is_file()), certificate)
            raise _unusable(missing, "a client's certificate with its key, not encrypted", error) from error
    return context


def absolute(tls: Tls, directory: Path) -> Tls:
    """The same with absolute paths, for a process that makes the context again."""
    paths = (tls.ca_cert_path, tls.client_cert_path, tls.client_key_path)
    ca, certificate, key = (str((directory / path).absolute()) if path else "" for path in paths)
    return Tls(tls.insecure_skip_verify, ca, certificate, key)


def _unusable(path: Path, expected: str, error: OSError) -> InputError:
    reason = error.strerror or str(error)
    problem = Problem("CONFIG_INVALID", f"cannot be used: {reason}", Place(str(path)), expected=f"{expected}, as PEM")
    return InputError([problem])
