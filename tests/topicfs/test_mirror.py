"""Tests of `topicfs mirror`: usage errors, and clusters that do not answer. tests/cluster/mirror tests the copying."""

from __future__ import annotations

import socket

import pytest

from tests.topicfs.conftest import assert_refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["/srv/topics", "copy"], "is not a cluster; expected kafka://host:9092"),
        (["kafka://host", "copy"], "host has no port"),
        (["kafka://host:9092"], "Missing argument 'DIR'"),
        (["kafka://host:9092", "copy", "--from", "yesterday"], "'yesterday': must be earliest, latest"),
        (["kafka://host:9092", "copy", "--from", "@tomorrow"], "tomorrow: not a time"),
    ],
)
def test_a_usage_error_names_the_wrong_word(topicfs, words, said):
    """A usage error names the wrong word and the expected words."""
    assert_refused(topicfs("mirror", *words), said, status=2)


def test_a_cluster_that_does_not_answer(topicfs, directory):
    """If the cluster does not answer, one line of error is printed, and nothing is created."""
    with socket.socket() as silent:  # The port is reserved but accepts no connection.
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        ran = topicfs("mirror", f"kafka://127.0.0.1:{port}", str(directory), "--once")
    assert_refused(ran, f"kafka://127.0.0.1:{port}: no broker answers (127.0.0.1:{port}: Connection refused)")
    assert not directory.exists()


def test_a_client_config_that_cannot_be_used(topicfs, directory, tmp_path):
    """The error for an invalid client config names the file and the setting.

    Unknown names are listed, unless they are settings of another Kafka client.
    """
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=TLS\n")
    ran = topicfs("mirror", "kafka://127.0.0.1:1", str(directory), "--client-config", str(config))
    assert f"topicfs: {config}: security.protocol=TLS: expected one of" in ran.errors.decode()
    config.write_text("acks=all\nbootstrap.servers=one:9092\nssl.cipher.suites=x\nsecurity.protocols=SSL\n")
    ran = topicfs("mirror", "kafka://127.0.0.1:1", str(directory), "--client-config", str(config))
    assert_refused(ran, f"{config}: settings without effect here: ssl.cipher.suites, security.protocols\n")
