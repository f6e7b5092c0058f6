"""Tests of the places of topics in `topicfs pipeline`, which are checked before Spark starts."""

from __future__ import annotations

import socket

import pytest

from tests.topicfs.conftest import assert_refused


@pytest.mark.parametrize("job", [("archive", "orders", "parquet"), ("replay", "orders", "copy")])
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("kafka://host", "host has no port"),
        ("http://host:1", "places of the kind http:// are not supported"),
        ("", "a place is"),
    ],
)
def test_an_invalid_place_is_a_usage_error(topicfs, job, place, said):
    """An invalid place is a usage error whose message gives the reason."""
    ran = topicfs("pipeline", *job, "--data", place)
    assert_refused(ran, "Invalid value for '--data'", status=2)
    assert place.encode() in ran.errors
    assert said.encode() in ran.errors


def test_the_target_of_a_replay_is_a_place_too(orders):
    """The target of a replay is checked in the same way as the source."""
    ran = orders("pipeline", "replay", "orders", "copy", "--to", "kafka://host:x")
    assert_refused(ran, "Invalid value for '--to': kafka://host:x: 'x' is not a port", status=2)
    ran = orders("pipeline", "replay", "orders", "copy", "--to", "/no/where")
    assert (1, True) == (ran.status, ran.errors.startswith(b"topicfs: /no/where: no such directory;"))


def test_a_cluster_that_does_not_answer_is_reported_at_once(orders):
    """A cluster that does not answer is reported immediately, although Kafka's clients would retry for minutes."""
    with socket.socket() as silent:  # The port is reserved but accepts no connection.
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        for words in (("archive", "orders", "parquet", "--data"), ("replay", "orders", "copy", "--to")):
            ran = orders("pipeline", *words, f"kafka://127.0.0.1:{port}")
            assert_refused(ran, f"topicfs: kafka://127.0.0.1:{port}: no broker can be reached (")


def test_settings_of_a_connection_belong_to_a_cluster(orders, tmp_path):
    """The option --client-config is valid only for a cluster.

    An invalid setting in its file is reported before Spark starts.
    """
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=TLS\n")
    ran = orders("pipeline", "replay", "orders", "copy", "--client-config", str(config))
    assert_refused(ran, "--client-config applies to a cluster", status=2)
    for words in (("archive", "orders", "parquet", "--data"), ("replay", "orders", "copy", "--to")):
        ran = orders("pipeline", *words, "kafka://127.0.0.1:1", "--client-config", str(config))
        assert_refused(ran, f"topicfs: {config}: security.protocol=TLS: expected one of")


@pytest.mark.parametrize("job", ["archive", "replay"])
def test_help_names_both_kinds_of_places(topicfs, job):
    """The help mentions both kinds of places: directories and a cluster."""
    assert "DIR[,DIR]|kafka://HOST:PORT" in topicfs("pipeline", job, "--help").text
