"""Tests of valid and invalid addresses of a cluster."""

from __future__ import annotations

import pytest

from topicfs.cluster.place import AddressError, Server, cluster_address


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("kafka://localhost:9092", [("localhost", 9092)]),
        ("KAFKA://10.0.0.1:1/", [("10.0.0.1", 1)]),
        ("kafka://one.example:9092, two.example:65535", [("one.example", 9092), ("two.example", 65535)]),
        ("kafka://[::1]:9092", [("::1", 9092)]),
    ],
)
def test_an_address_is_some_of_the_brokers(text, servers):
    """An address names one or more brokers, and is printed in one normal form."""
    address = cluster_address(text)
    assert tuple(Server(*server) for server in servers) == address.servers
    assert address == cluster_address(str(address))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kafka://", "kafka://: no host"),
        ("kafka://:9092", "no host"),
        ("kafka://one:9092,", "no host"),
        ("kafka://host", "host has no port"),
        ("kafka://host:", "host has no port"),
        ("kafka://one:9092,two", "two has no port"),
        ("kafka://host:0", "'0' is not a port"),
        ("kafka://host:65536", "'65536' is not a port"),
        ("kafka://host:http", "'http' is not a port"),
        ("kafka://host:٣", "is not a port"),
        ("kafka://host:9092/orders", "is not host:port"),
        ("kafka://me@host:9092", "is not host:port"),
        ("kafka://one:1,kafka://two:2", "is not host:port"),
        ("kafka://a b:9092", "is not host:port"),
        ("/srv/topics", "is not a cluster; expected kafka://host:9092"),
    ],
)
def test_what_is_no_address(text, said):
    """An invalid address gives an error with its text, the cause and what was expected."""
    with pytest.raises(AddressError) as caught:
        cluster_address(text)
    assert said in str(caught.value)
    assert text in str(caught.value)
