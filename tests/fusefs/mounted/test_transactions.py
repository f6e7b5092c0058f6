"""Transactions of a broker's producers, shown by real mounts with each isolation level."""

from __future__ import annotations

import errno
import json
import os
import shutil

import pytest

from tests.doubles.records import batch, marker
from tests.fusefs.mounted.conftest import ROOT, Mount
from topicfs.replication import open_engine
from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.headers import BatchStamp
from topicfs.storage.model import Isolation
from topicfs.storage.producers.append import Origin

pytestmark = pytest.mark.fuse

VECTORS = ROOT / "tests" / "vectors" / "broker-made"
TOPICS = ("transactions", "compacted-transactions")


def brokers(mount: Mount, **options: object) -> Mount:
    """Mount a copy of a broker's log directory."""
    shutil.copytree(VECTORS / "log-dirs", mount.data)
    return mount.start(**options)


def consumed(topic: str, isolation: Isolation) -> list[tuple[int, str]]:
    """Return the offset and value of each record that a broker's consumer with `isolation` got."""
    lines = (VECTORS / "consumed" / f"{topic}-0.{isolation.value}.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [(record["offset"], bytes.fromhex(record["value"] or "").decode()) for record in records]


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("topic", TOPICS)
def test_every_file_shows_what_a_consumer_of_that_isolation_got(
    unmounted: Mount, isolation: Isolation, topic: str
):
    """Logs, ranges, single records and links show what a consumer of the same isolation level got, and no markers."""
    mount = brokers(unmounted, isolation=isolation.value)
    expected = consumed(topic, isolation)
    place = mount.path / topic / "0"

    assert (place / "log").read_text().splitlines() == [value for _, value in expected]
    shown = [json.loads(line) for line in (place / "log.json").read_text().splitlines()]
    assert [(record["offset"], record["payload"] or "") for record in shown] == expected
    headers = list(scan((place / "log.batch").read_bytes()))
    assert sum(header.record_count for header in headers) == len(expected)
    assert not any(header.is_control for header in headers)
    assert (place / "-10").read_text().splitlines() == [value for _, value in expected[-10:]]
    assert os.readlink(place / "earliest") == str(expected[0][0])
    assert os.readlink(place / "latest") == str(expected[-1][0])
    first, last = expected[len(expected) // 3][0], expected[len(expected) // 2][0]
    inside = [value for offset, value in expected if first <= offset <= last]
    assert (place / f"{first}-{last}").read_text().splitlines() == inside


@pytest.mark.parametrize("topic", TOPICS)
def test_runs_of_a_group_get_what_a_consumer_got(unmounted: Mount, topic: str):
    """`next-3` of a group returns three visible records at a time, each record once, and commits past markers."""
    mount = brokers(unmounted)
    expected = [value for _, value in consumed(topic, Isolation.READ_COMMITTED)]
    ran = mount.bash(
        "mkdir @groups/g; while cat @groups/g/$topic/next-3 | tee $run | grep -c . >> $counts; do cat $run; done; "
        "cat @groups/g/$topic/0/lag",
        topic=topic,
        run=mount.base / "run",
        counts=mount.base / "counts",
    )
    counts = (mount.base / "counts").read_text().split()

    assert [*expected, "0"] == ran.stdout.splitlines()
    assert len(expected) == sum(map(int, counts))
    assert {"3"} == set(counts[: len(expected) // 3])
    assert "0" == counts[-1]


def test_an_aborted_record_is_nowhere_but_uncommitted(unmounted: Mount):
    """Only read_uncommitted shows aborted records. Neither level shows markers. Sizes count the shown records."""
    mount = brokers(unmounted)
    committed = dict(consumed("transactions", Isolation.READ_COMMITTED))
    everything = dict(consumed("transactions", Isolation.READ_UNCOMMITTED))
    aborted = next(offset for offset in everything if offset not in committed)
    marker = next(offset for offset in range(max(everything)) if offset not in everything)
    place = mount.path / "transactions" / "0"
    text = (place / "log").read_bytes()
    assert not (place / str(aborted)).exists()
    assert not (place / str(marker)).exists()
    mount.stop()
    mount.start(isolation="read_uncommitted")

    assert (place / str(aborted)).read_text() == everything[aborted]
    assert not (place / str(marker)).exists()
    assert (place / "log").stat().st_size == sum(len(value) + 1 for value in everything.values())
    mount.stop()
    mount.start(isolation="read_committed")
    assert (place / "log").stat().st_size == len(text)
    assert (place / "log").read_bytes() == text


def test_an_open_transaction_holds_back_what_comes_after(unmounted: Mount):
    """Records after the start of an open transaction are shown when its marker is written, in the log's order."""
    mount = brokers(unmounted)
    log = mount.path / "transactions" / "0" / "log"
    before = log.read_text()
    mount.bash("echo behind >> transactions/0/log")
    assert log.read_text() == before
    mount.stop()
    engine = open_engine(mount.data)
    partition = engine.partition("transactions", 0)
    held_back = partition.offsets().last_stable_offset
    batches = scan(partition.read(held_back, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED).data)
    producer_id, epoch = batches[0].producer_id, batches[0].producer_epoch
    partition.append(marker(pid=producer_id, epoch=epoch), origin=Origin.COORDINATOR)
    engine.close()
    mount.start()

    values = dict(consumed("transactions", Isolation.READ_UNCOMMITTED))
    decided = [values[offset] for offset in sorted(values) if offset >= held_back]
    assert decided
    assert log.read_text().splitlines() == [*before.splitlines(), *decided, "behind"]


def test_a_copy_of_transactions_is_plain_records(unmounted: Mount):
    """Copying a batch of a committed transaction makes a plain batch."""
    mount = brokers(unmounted)
    result = mount.bash("mkdir copy; cat transactions/0/log.batch >> copy/0/log.batch")

    assert (0, "") == (result.returncode, result.stderr)
    place = mount.path / "copy" / "0"
    assert (place / "log").read_bytes() == (mount.path / "transactions" / "0" / "log").read_bytes()
    copied = list(scan((place / "log.batch").read_bytes()))
    assert {(False, -1)} == {(header.is_transactional, header.producer_id) for header in copied}


def test_plain_data_amid_a_producers_open_transaction_is_einval(unmounted: Mount):
    """A plain batch of a producer with an open transaction gives EINVAL, and the reason names the producer."""
    mount = brokers(unmounted)
    segments = sorted((mount.data / "transactions-0").glob("*.log"))
    undecided = {}
    for header in (header for segment in segments for header in scan(segment.read_bytes())):
        if header.is_control:
            del undecided[header.producer_id]
        elif header.is_transactional:
            undecided[header.producer_id] = header
    (last,) = undecided.values()
    stamp = BatchStamp(
        producer_id=last.producer_id,
        producer_epoch=last.producer_epoch,
        base_sequence=last.last_sequence + 1,
    )
    descriptor = os.open(mount.path / "transactions/0/log.batch", os.O_WRONLY | os.O_APPEND)
    with pytest.raises(OSError, match="Invalid argument") as caught:
        os.write(descriptor, batch(b"plain", key=b"k", timestamp=last.max_timestamp, stamp=stamp))
    os.close(descriptor)

    assert caught.value.errno == errno.EINVAL
    assert f"producer {last.producer_id} wrote outside its open transaction" in mount.status
