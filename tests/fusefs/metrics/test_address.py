"""The addresses at which metrics are served."""

from __future__ import annotations

import pytest

from topicfs.fusefs.metrics.address import LOOPBACK, parse_metrics_address
from topicfs.storage.errors import InvalidConfigError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("9464", LOOPBACK, 9464),
        (":9464", LOOPBACK, 9464),
        ("0", LOOPBACK, 0),
        ("localhost:9464", "localhost", 9464),
        ("0.0.0.0:65535", "0.0.0.0", 65535),
        ("[::1]:9464", "::1", 9464),
        ("[fe80::1%eth0]:9464", "fe80::1%eth0", 9464),
    ],
)
def test_an_address_is_a_port_with_an_optional_host(text: str, host: str, port: int):
    """An address is [HOST:]PORT; without HOST, the server listens only on the loopback interface."""
    assert (host, port) == parse_metrics_address(text)


REFUSED = {
    "no port": ["", ":", "host", "host:", "[::1]"],
    "no number of a port": ["65536", "-1", "host:port"],
    "no host": ["::1:9464", "a b:1", "http://host:1", "1:2:3"],
}


@pytest.mark.parametrize("text", [text for texts in REFUSED.values() for text in texts])
def test_an_invalid_address_is_refused_with_the_remedy(text: str):
    """An invalid address is refused with a one-line error that names the address and the remedy."""
    with pytest.raises(InvalidConfigError) as raised:
        parse_metrics_address(text)
    assert str(raised.value).startswith(f"{text}: not an address to listen at; write HOST:PORT")


def test_an_address_is_shown_as_it_is_written_in_an_url():
    """An IPv6 address is shown in brackets, as in a URL."""
    assert ["127.0.0.1:1", "[::1]:2"] == [str(parse_metrics_address(text)) for text in ("1", "[::1]:2")]
