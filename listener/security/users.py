"""The users of a listener, in a file with a line for each user.

    alice:SCRAM-SHA-256=[salt=…,stored_key=…,server_key=…,iterations=16384],SCRAM-SHA-512=[salt=…,…]

A line has the user's credentials for both SCRAM mechanisms, as a broker stores them: base64 of the salt (16 bytes) and
of the two keys of RFC 5802. The file has no password. Empty lines and lines that begin with `#` are ignored.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from topicfs.listener.errors import ListenerError
from topicfs.protocol.scram import (
    FEWEST_ITERATIONS,
    HASHES,
    MAX_SCRAM_ITERATIONS,
    encode,
    scram_keys,
)
from topicfs.storage.disk.plain_files import open_known

ITERATIONS = 16_384
"""Number of iterations of new entries: the most that kafka-configs allows."""
SALT_BYTES = 16
_MAX_FILE_BYTES = 16 << 20
_CHECKED_WITH = "SCRAM-SHA-256"
"""Passwords sent by PLAIN are checked against the credentials of this mechanism."""

_CREDENTIAL = re.compile(
    r"([A-Z0-9-]+)=\[salt=([^,]+),stored_key=([^,]+),server_key=([^,]+),iterations=([0-9]{4,7})\]"
)
_ENTRY = re.compile(rf"(?P<user>[^\s#].*):(?P<credentials>{_CREDENTIAL.pattern},{_CREDENTIAL.pattern})")


class ScramCredential(NamedTuple):
    """The values that the server stores to check a user's password by one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __str__(self) -> str:
        keys = zip(self._fields, map(encode, self[:3]), strict=False)
        return ",".join(f"{name}={value}" for name, value in keys) + f",iterations={self.iterations}"


class Users:
    """The users of one file."""

    def __init__(self, entries: Mapping[str, Mapping[str, ScramCredential]]) -> None:
        """`entries` has the credentials of each user, by mechanism; there must be at least one user."""
        self._entries = entries
        first = next(iter(entries.values()))[_CHECKED_WITH]
        self._secret, self._iterations = first.stored_key, first.iterations
        self._checking = threading.Lock()

    def credential(self, user: str, mechanism: str) -> ScramCredential:
        """Return a user's credential.

        An unknown user always gets the same made-up credential, which matches no password.
        """
        name = user.encode(errors="replace")
        made = {
            part: hmac.digest(self._secret, f"{mechanism} {part} ".encode() + name, HASHES[mechanism])
            for part in ScramCredential._fields
        }
        unknown = ScramCredential(
            made["salt"][:SALT_BYTES], made["stored_key"], made["server_key"], self._iterations
        )
        return self._entries.get(user, {}).get(mechanism, unknown)

    def has_password(self, user: str, password: bytes) -> bool:
        """Return whether `password` is the user's password. An unknown user takes the same time as a known user.

        One password is checked at a time, so that guesses use at most one processor. Blocks.
        """
        known = self.credential(user, _CHECKED_WITH)
        with self._checking:
            keys = scram_keys(HASHES[_CHECKED_WITH], password, known.salt, known.iterations)
        return hmac.compare_digest(keys.stored, known.stored_key)


def read_users(path: Path) -> Users:
    """Read a file of users. Raises ListenerError, also if users other than its owner and group can access the file."""
    try:
        descriptor, found = open_known(path.resolve(), os.O_RDONLY)
        with os.fdopen(descriptor, "rb") as file:
            if found.st_mode & stat.S_IRWXO:
                raise ListenerError(
                    f"{path}: every user of this machine can access the listener's users; chmod o= {path}"
                )
            if found.st_size > _MAX_FILE_BYTES:
                raise ListenerError(f"{path}: too large for a file of users")
            text = file.read().decode()
    except OSError as error:
        raise ListenerError(f"{path}: cannot read the listener's users: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ListenerError(f"{path}: the file of users is not UTF-8") from None
    return _users(path, text)


def entry(user: str, password: str) -> str:
    """Return the line for a user. Raises ListenerError for a user name that is not allowed."""
    if not user.isprintable() or user != user.strip() or user[:1] in ("", "#"):
        raise ListenerError(
            f"{user!r}: not a user's name: it is empty, begins with #, or has spaces around it"
        )
    if not password:
        raise ListenerError(f"{user}: the password is empty")
    made = ",".join(f"{mechanism}=[{_made(mechanism, password)}]" for mechanism in HASHES)
    return f"{user}:{made}"


def _made(mechanism: str, password: str) -> ScramCredential:
    salt = os.urandom(SALT_BYTES)
    keys = scram_keys(HASHES[mechanism], password.encode(), salt, ITERATIONS)
    return ScramCredential(salt, keys.stored, keys.server, ITERATIONS)


def _users(path: Path, text: str) -> Users:
    entries: dict[str, Mapping[str, ScramCredential]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _ENTRY.fullmatch(line.rstrip("\r"))
        credentials = _credentials(found["credentials"]) if found else {}
        if found is None or credentials.keys() != HASHES.keys():
            raise ListenerError(
                f"{path}: line {number} is not an entry; make one with `topicfs listener-user NAME`"
            )
        if found["user"] in entries:
            raise ListenerError(f"{path}: {found['user']} has two lines; delete the old one")
        entries[found["user"]] = credentials
    if not entries:
        raise ListenerError(f"{path}: no users; add one: topicfs listener-user NAME >> {path}")
    if len({one.iterations for credentials in entries.values() for one in credentials.values()}) > 1:
        raise ListenerError(
            f"{path}: the entries must have the same number of iterations, because a client could tell known users "
            "from unknown ones; make all entries again with `topicfs listener-user NAME`"
        )
    return Users(entries)


def _credentials(text: str) -> dict[str, ScramCredential]:
    """Parse credentials; leave out those that are not valid."""
    found = {}
    for mechanism, *parts, iterations in _CREDENTIAL.findall(text):
        try:
            salt, stored, server = (base64.b64decode(part, validate=True) for part in parts)
        except ValueError:
            continue
        size = hmac.new(b"", b"", HASHES[mechanism]).digest_size if mechanism in HASHES else -1
        fits = (SALT_BYTES, size, size) == (len(salt), len(stored), len(server))
        if fits and FEWEST_ITERATIONS <= int(iterations) <= MAX_SCRAM_ITERATIONS:
            found[mechanism] = ScramCredential(salt, stored, server, int(iterations))
    return found
