"""TLS of a listener: the server's certificate, and the authority that must have signed clients' certificates."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

from topicfs.listener.errors import ListenerError


def tls_context(certificate: Path, key: Path | None, client_authority: Path | None) -> ssl.SSLContext:
    """Read PEM files, and return the context of a server for TLS 1.2 and 1.3. Raises ListenerError.

    The key may be in the file of the certificate. With `client_authority`, only clients with a certificate of that
    authority can connect. The file of the key must not be readable by users other than its owner and group.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    for path in (certificate, key, client_authority):
        _check_readable(path)
    try:
        context.load_cert_chain(
            certificate, key, password=str
        )  # Without `password`, OpenSSL would ask for a password on the terminal.
        _check_private(key or certificate)
    except (OSError, ValueError) as error:
        if key is None and _has_only_certificates(certificate):
            raise ListenerError(f"{certificate} has no private key; name its file: --tls-key FILE") from None
        raise ListenerError(
            f"{key or certificate}: not the key of the certificate in {certificate} ({_reason(error)}); both must be "
            "PEM, and the key without a password"
        ) from None
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_authority)
        except (OSError, ValueError) as error:
            raise ListenerError(f"{client_authority}: no PEM certificates ({_reason(error)})") from None
    return context


def _check_readable(path: Path | None) -> None:
    """Raise ListenerError for a file that cannot be opened.

    Errors of the ssl module do not name the file that cannot be opened.
    """
    try:
        if path is not None:
            path.open("rb").close()
    except OSError as error:
        raise ListenerError(f"{path}: {error.strerror}") from None


def _check_private(path: Path) -> None:
    if path.stat().st_mode & stat.S_IROTH:
        raise ListenerError(f"{path}: every user of this machine can read the key; chmod o= {path}")


def _has_only_certificates(path: Path) -> bool:
    content = path.read_bytes()
    return b"CERTIFICATE-----" in content and b"PRIVATE KEY-----" not in content


def _reason(error: OSError | ValueError) -> str:
    return ((isinstance(error, ssl.SSLError) and error.reason) or "not PEM").lower().replace("_", " ")
