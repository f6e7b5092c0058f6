"""The files that define who may connect to a listener, and their contents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ssl

    from topicfs.listener.security.users import Users


class ListenerSecurity(NamedTuple):
    """How clients' connections are encrypted and authenticated."""

    tls: ssl.SSLContext | None = None
    users: Users | None = None


class SecurityFiles(NamedTuple):
    """The files of a listener's certificate and users.

    Without a certificate, connections are not encrypted. Without a file of users, clients need no password.
    """

    certificate: Path | None = None
    key: Path | None = None
    """The certificate's key, if it is not in the file `certificate`."""
    client_authority: Path | None = None
    """The authority that signs certificates of clients."""
    users: Path | None = None

    @property
    def keep_strangers_out(self) -> bool:
        """True if connections are encrypted, and each client has to authenticate."""
        return self.certificate is not None and (self.users or self.client_authority) is not None

    def read(self) -> ListenerSecurity:
        """Read the files. Raises ListenerError."""
        tls = users = None
        if self.certificate is not None:
            from topicfs.listener.security.tls import tls_context

            tls = tls_context(self.certificate, self.key, self.client_authority)
        if self.users is not None:
            from topicfs.listener.security.users import read_users

            users = read_users(self.users)
        return ListenerSecurity(tls, users)
