"""Converts a file of client settings for Kafka's Java client, which Spark uses.

References in the file are replaced by their values, so no command line needs a secret. The result contains the secrets.
"""

from __future__ import annotations

import re
from pathlib import Path

from topicfs.cluster.protocol.security import JAAS, KNOWN, jaas_options, read_security, read_settings

_STORES = ("ssl.truststore", "ssl.keystore")
_LOCATIONS = ("ssl.truststore.location", "ssl.keystore.location")


def for_java(path: Path) -> dict[str, str]:
    """Return valid settings for a Java client, with absolute paths. Raises InvalidConfigError, OSError."""
    read_security(path)
    settings = {name: value for name, value in read_settings(path).items() if name in KNOWN}
    settings |= {name: str(Path(settings[name]).absolute()) for name in _LOCATIONS if settings.get(name)}
    for store in _STORES:
        if any(name.startswith(f"{store}.") for name in settings):
            settings.setdefault(f"{store}.type", "PEM")  # Java assumes its own format if no type is set.
    if settings.get(JAAS, "").strip():
        module = settings[JAAS].split()[0]
        login = (f"{name}={_quoted(value)}" for name, value in jaas_options(settings[JAAS]).items())
        settings[JAAS] = " ".join((module, "required", *login)) + ";"
    return settings


def _quoted(value: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", value)
    return f'"{escaped}"'
