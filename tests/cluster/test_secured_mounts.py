"""Tests of mounts of a secured cluster: the error of a refused mount, and the errors of files."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AclOperation

from testing.broker.client import Outgoing
from tests.doubles.cluster_mount import Ran
from tests.doubles.forks import COMMAND, FORKS
from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import is_mounted, shell

pytestmark = [pytest.mark.java, pytest.mark.fuse]

ALICE = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="%s";'
PASSWORD = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


@pytest.fixture
def mount(tmp_path):
    """Returns a function that runs `topicfs mount` on a listener with client settings, and unmounts at the end."""
    path = tmp_path / "mnt"
    path.mkdir()

    def run(port, **settings):
        config = tmp_path / "client.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        given = ["--client-config", str(config)] if settings else []
        log = str(tmp_path / "log")
        done = FORKS.run(COMMAND, "mount", *given, "--log-file", log, f"kafka://localhost:{port}", str(path))
        return Ran(done.status, done.output.decode(), done.errors.decode())

    run.path = path
    yield run
    if is_mounted(path):
        assert 0 == FORKS.run(COMMAND, "umount", str(path)).status


def said_by(done):
    """Return the one line that a failed mount printed."""
    assert 1 == done.status, done
    [line] = done.errors.splitlines()
    return line


def test_a_wrong_password_is_reported(mount, broker):
    """The error for a wrong password has the user's name and the remedy but not the password; nothing is mounted."""
    port = broker.ports["SASL_PLAINTEXT"]
    line = said_by(mount(port, **PASSWORD, **{"sasl.jaas.config": ALICE % "hunter2"}))
    assert f"localhost:{port}: PLAIN as alice: the cluster answers SASL_AUTHENTICATION_FAILED" in line
    assert "check user and password" in line
    assert "hunter2" not in line
    assert not is_mounted(mount.path)


def test_certificate_errors_name_the_setting(mount, broker, certificates):
    """An unknown authority, and a missing or expired client certificate, give an error that names the setting."""
    port = broker.ports["SSL"]
    tls = {"security.protocol": "SSL", "ssl.truststore.location": certificates.authority}
    line = said_by(mount(port, **{**tls, "ssl.truststore.location": certificates.stranger}))
    assert "its certificate is rejected: " in line
    assert "set ssl.truststore.location to a file with the CA that signed it" in line
    old = certificates.pair("old-mount", expired=True)
    for settings in (tls, {**tls, "ssl.keystore.location": old}):
        line = said_by(mount(port, **settings))
        assert "rejects this client's certificate" in line
        assert "ssl.keystore.location" in line


def test_the_error_says_what_a_listener_requires(mount, broker):
    """Without settings, the error says which settings the listener requires."""
    assert "if it requires SASL, give credentials: --client-config FILE" in said_by(
        mount(broker.ports["SASL_PLAINTEXT"])
    )
    assert "it speaks TLS: give --client-config FILE" in said_by(mount(broker.ports["SASL_SSL"]))


def test_a_forbidden_topic_does_not_affect_other_topics(mount, broker, client):
    """A forbidden topic gives EACCES, with the missing ACL in @status, while other topics work."""
    topics = ("mounted-free", "mounted-described", "mounted-hidden")
    for topic in topics:
        client.create_topic(topic)
        client.produce(topic, [Outgoing(b"one")])
    client.allow("mounted-described", "alice", AclOperation.DESCRIBE)
    client.allow("mounted-hidden", "bob", AclOperation.READ)
    done = mount(broker.ports["SASL_PLAINTEXT"], **PASSWORD, **{"sasl.jaas.config": ALICE % "alice-secret"})
    assert ("", 0) == (done.errors, done.status)

    def ran(script):
        found = shell("bash", script, mount.path)
        return found.stdout, found.stderr, found.returncode

    assert ("mounted-described\nmounted-free\n", "", 0) == ran("ls -d mounted-*")
    assert ("one\n", "", 0) == ran("cat mounted-free/0/log")
    for script in ("cat mounted-described/0/log", "echo two >> mounted-described/0/log"):
        out, error, status = ran(script)
        assert ("", 1) == (out, status)
        assert "Permission denied" in error
    wait_until(
        lambda: "TOPIC_AUTHORIZATION_FAILED; ask for an ACL" in (mount.path / "@status").read_text(),
        "@status has the reason",
    )
    assert ("one\ntwo\n", "", 0) == ran("echo two >> mounted-free/0/log && cat mounted-free/0/log")
