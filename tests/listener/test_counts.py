"""Counts of a listener's requests and clients."""

from __future__ import annotations

from tests.doubles.waiting import wait_until
from tests.listener.serving import RawClient, Served
from topicfs.listener.counts import MAX_CLIENTS, ClientName, ListenerCounts, RequestNote, client_name
from topicfs.protocol.messages import API_VERSIONS
from topicfs.storage.counts.engine_counts import OTHERS


def test_requests_are_counted_by_kind_and_by_client(client: RawClient, served: Served) -> None:
    """Each answer is counted with its bytes and its first error. An open connection counts for its client."""
    client.ask(API_VERSIONS, {"clientSoftwareName": "raw", "clientSoftwareVersion": "1"}, 3)
    client.topic("t")
    client.fetch("t", 77)
    found = served.listener.counts
    assert found is not None
    assert {"ApiVersions": 1, "Metadata": 1, "Fetch": 1} == {
        kind: sum(one.buckets) for kind, one in found.durations().items()
    }
    assert {("Fetch", "OFFSET_OUT_OF_RANGE"): 1} == found.errors()
    [(name, counts)] = found.clients().items()
    assert (("test", "raw"), 3, 1, 1) == (name, counts.requests, counts.errors, counts.connections)
    assert counts.sent_bytes > counts.received_bytes > 100
    assert (1, 1000) == served.listener.connections
    size = f"received_bytes {counts.received_bytes} sent_bytes {counts.sent_bytes}"
    line = f"client connections 1 requests 3 errors 1 {size} software raw id test"
    assert ["connections 1 of 1000", line] == served.listener.status_lines()[1:]
    client.close()
    wait_until(lambda: 0 == counts.connections, "the connection is no longer counted")


def test_the_number_of_clients_is_bounded() -> None:
    """Clients above the limit are counted together, even if connections change their client ids or end."""
    counts = ListenerCounts()
    names = [ClientName(f"c{number}", "") for number in range(MAX_CLIENTS + 5)]
    before = None
    for name in names:
        counts.move(before, name)
        counts.note(name, RequestNote("Fetch", 1, received_bytes=10, sent_bytes=20, error=77777))
        before = name
    found = counts.clients()
    assert [*names[:MAX_CLIENTS], ClientName(OTHERS, OTHERS)] == list(found)
    others = found[ClientName(OTHERS, OTHERS)]
    assert (5, 5, 50, 100, 1) == (
        others.requests,
        others.errors,
        others.received_bytes,
        others.sent_bytes,
        others.connections,
    )
    counts.move(before, None)
    assert {0} == {one.connections for one in counts.clients().values()}
    assert {("Fetch", "77777"): len(names)} == counts.errors()


def test_hostile_names_of_clients_are_short_and_printable() -> None:
    """A client id with any characters and of any length is shown in at most 64 printable characters."""
    assert ClientName("a\\x00\\x1b\\n", "") == client_name("a\0\x1b\n", "")
    assert 64 == len(client_name("x" * 32_000, "").client)
