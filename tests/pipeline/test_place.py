"""Tests of valid and invalid texts for a place of topics."""

from __future__ import annotations

import pytest

from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.place import SparkPlace, place_of


@pytest.mark.parametrize(
    "text", ["/srv/topics", "topics", "/a,/b", "/srv/*/data", "file:///srv/topics", "C:topics", "/odd:name"]
)
def test_data_directories_are_named_by_their_paths(text):
    """Data directories are named by a path, by several paths or by a glob pattern; they need not exist."""
    place = place_of(text)
    assert ("topicfs", {"path": text}, False) == (place.format, place.options, place.is_kafka)
    assert text == str(place)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("kafka://localhost:9092", "localhost:9092"),
        (" KAFKA://10.0.0.1:1/ ", "10.0.0.1:1"),
        ("kafka://one.example:9092, two.example:65535", "one.example:9092,two.example:65535"),
        ("kafka://[::1]:9092", "[::1]:9092"),
    ],
)
def test_a_cluster_is_named_by_its_brokers(text, servers):
    """One or several brokers name a cluster. All spellings of a cluster are printed in the same form."""
    place = place_of(text)
    assert ("kafka", {"kafka.bootstrap.servers": servers}) == (place.format, place.options)
    assert place.is_kafka
    assert f"kafka://{servers}" == str(place)
    assert place == place_of(str(place))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a place is a data directory, or a cluster: kafka://host:9092"),
        ("  ", "a place is a data directory"),
        ("http://host:9092", "places of the kind http:// are not supported"),
        ("s3a://bucket/topics", "places of the kind s3a:// are not supported"),
        ("/srv/a,kafka://host:9092", "a cluster and a directory are not one place"),
    ],
)
def test_an_invalid_place_is_refused(text, said):
    """The error for an invalid place has its text, the cause, and what was expected."""
    with pytest.raises(PipelineError) as caught:
        place_of(text)
    assert said in str(caught.value)
    assert text.strip() in str(caught.value)


def test_a_place_is_a_value():
    """Equal places compare equal, and count once in a set."""
    assert {SparkPlace(path="/srv")} == {place_of("/srv"), place_of(" /srv ")}
