"""Converts a settings file for other clients: with references resolved for Java, with its own names for librdkafka."""

from __future__ import annotations

import pytest

from topicfs.cluster.protocol.other_clients import for_java, for_librdkafka
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
        f"ssl.keystore.location={certificates.pair('other-clients')}\n"
        "client.id=reports\n"
    )
    return path


def test_java_gets_its_own_names(file, certificates):
    """Java gets its own names; PEM files are marked as PEM, and settings without effect are left out."""
    found = for_java(file)
    assert f'{LOGIN} username="reports" password="a\\"b\\\\c";' == found["sasl.jaas.config"]
    assert ("PEM", "PEM") == (found["ssl.truststore.type"], found["ssl.keystore.type"])
    assert str(certificates.authority) == found["ssl.truststore.location"]
    assert "client.id" not in found


def test_librdkafka_gets_its_own(file, certificates):
    """librdkafka gets separate user and password settings, and one file for key and certificate."""
    found = for_librdkafka(file)
    assert ("reports", 'a"b\\c') == (found["sasl.username"], found["sasl.password"])
    assert str(certificates.authority) == found["ssl.ca.location"]
    assert found["ssl.key.location"] == found["ssl.certificate.location"]
    assert ("SASL_SSL", "PLAIN") == (found["security.protocol"], found["sasl.mechanism"])


def test_tokens_are_asked_for_by_the_other_client_itself(tmp_path):
    """The other client gets the settings that it needs to fetch tokens itself; disabled host checks stay disabled."""
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.oauthbearer.token.endpoint.url=http://localhost/token\n"
        'sasl.jaas.config=x.OAuthBearerLoginModule required clientId="carol" clientSecret="s";\n'
        "ssl.endpoint.identification.algorithm=\n"
    )
    found = for_librdkafka(path)
    assert ("oidc", "carol", "s", "none") == (
        found["sasl.oauthbearer.method"],
        found["sasl.oauthbearer.client.id"],
        found["sasl.oauthbearer.client.secret"],
        found["ssl.endpoint.identification.algorithm"],
    )


def test_unusable_settings_are_refused(tmp_path):
    """Unusable settings are refused by topicfs, before another client fails with its own message."""
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n")
    for settings_of in (for_java, for_librdkafka):
        with pytest.raises(
            InvalidConfigError, match=r"client.properties: sasl.mechanism=GSSAPI: topicfs supports"
        ):
            settings_of(path)
