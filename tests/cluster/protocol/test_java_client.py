"""Tests of a settings file that is converted for Kafka's Java client, with its references resolved."""

from __future__ import annotations

import pytest

from topicfs.cluster.protocol.java_client import for_java
from topicfs.storage.errors import InvalidConfigError

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture
def file(tmp_path, certificates, monkeypatch):
    """A settings file with mutual TLS, and with a user whose password needs quoting and comes from the environment."""
    monkeypatch.setenv("REPORTS_PASSWORD", 'a"b\\c')
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGIN} username=reports password="${{env:REPORTS_PASSWORD}}";\n'
        f"ssl.truststore.location={certificates.authority}\n"
        f"ssl.keystore.location={certificates.pair('java-client')}\n"
        "client.id=reports\n"
    )
    return path


def test_java_gets_its_own_names(file, certificates):
    """Settings get the names of the Java client; PEM files are marked as PEM, and unused settings are left out."""
    found = for_java(file)
    assert f'{LOGIN} username="reports" password="a\\"b\\\\c";' == found["sasl.jaas.config"]
    assert ("PEM", "PEM") == (found["ssl.truststore.type"], found["ssl.keystore.type"])
    assert str(certificates.authority) == found["ssl.truststore.location"]
    assert "client.id" not in found


def test_unusable_settings_are_refused(tmp_path):
    """Unusable settings are refused by topicfs, before another client fails with its own message."""
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n")
    with pytest.raises(
        InvalidConfigError, match=r"client.properties: sasl.mechanism=GSSAPI: topicfs supports"
    ):
        for_java(path)
