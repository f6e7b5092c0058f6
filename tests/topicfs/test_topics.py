"""Tests of `topicfs topics` without a mount."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_a_topic_is_created_listed_described_and_deleted(topicfs, directory):
    """An empty topic is created, listed, described and deleted."""
    assert (0, b"orders: created with 2 partitions\n", b"") == topicfs(
        "topics", "create", "orders", "--partitions", "2", "--config", "retention.ms=1000"
    )
    assert b"orders\n" == topicfs("topics", "list").output
    described = topicfs("topics", "describe", "orders").text.splitlines()
    assert described[0].startswith("orders  id ")
    assert "  retention.ms=1000" == described[1]
    assert ["partition", "start", "end"] == described[2].split()[:3]
    assert [["0", "0", "0"], ["1", "0", "0"]] == [line.split()[:3] for line in described[3:]]
    assert (0, b"orders: deleted\n", b"") == topicfs("topics", "delete", "orders")
    assert b"" == topicfs("topics", "list").output


def test_a_topic_with_records_is_deleted_only_when_told_so(orders):
    """A topic that has records is deleted only with --with-records."""
    refused = orders("topics", "delete", "orders")
    assert (1, b"topicfs: orders: holds 3 records; add --with-records to delete them too\n") == (
        refused.status,
        refused.errors,
    )
    assert 0 == orders("topics", "delete", "orders", "--with-records").status
    assert b"" == orders("topics", "list").output


def test_listing_changes_nothing(orders, directory):
    """Listing, describing and checking change no file."""
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    orders("topics", "list")
    orders("topics", "describe", "orders")
    orders("check", str(directory))
    assert before == {path: path.stat().st_mtime_ns for path in directory.rglob("*")}


@pytest.mark.parametrize("refused", ["orders", "new", "e@f", "or_ders"])
def test_no_topic_is_created_if_one_of_the_names_is_refused(orders, refused):
    """If one of several names is refused, no topic is created."""
    orders("topics", "create", "or.ders")
    assert 0 != orders("topics", "create", "new", refused).status
    assert "or.ders\norders\n" == orders("topics", "list").text


@pytest.mark.parametrize(
    "words", [("e@f",), ("new", "__consumer_offsets"), ("new", "--config", "retention.ms=soon")]
)
def test_a_refused_topic_makes_no_directory(topicfs, words):
    """If a name or setting is refused, no data directory is created."""
    assert 1 == topicfs("topics", "create", *words, "--data", "fresh").status
    assert not Path("fresh").exists()
