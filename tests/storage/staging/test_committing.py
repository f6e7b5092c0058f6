"""Writes that others prepare are appended whole and once, whatever crashes between any two steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from storage.codec.batch import scan
from storage.codec.records import encode, encode_lines
from storage.disk.names import WriteFileKind, WriteId, parse_write_file, write_file
from storage.errors import CorruptionError
from storage.manager import LogManager
from storage.model import NO_TIMESTAMP, Offset, Record, Timestamp, TopicPartition
from storage.staging.area import ABANDONED_AFTER_MS, StagingArea, WriteState
from storage.staging.committing import Committer
from storage.staging.manifest import decode_manifest
from storage.staging.placement import NewTopic
from storage.staging.placing import BESIDE_BYTES
from storage.staging.staged_file import StagedFile
from tests.doubles.engines import DATA, append_lines, engine_on, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.mortal_disk import End, MortalDisk, dies
from tests.doubles.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.slow

BATCH = WriteId("b1946ac9-2d3f", 3)
ONCE = WriteId("e59ff979-41aa")
MAX_STEPS = 400
DAY_MS = 24 * 3600 * 1000
TASKS = {
    0: [("orders", 0, "a\nb\n"), ("orders", 1, "c\n"), ("orders", 0, "d\n")],
    1: [("orders", 1, "e\nf\n"), ("clicks", 0, "g\n")],
}
EXPECTED = {("orders", 0): ["a", "b", "d"], ("orders", 1): ["c", "e", "f"], ("clicks", 0): ["g"]}
BEFORE = {("orders", 0): [], ("orders", 1): [], ("clicks", 0): []}


def populated(disk: SimulatedDisk) -> LogManager:
    engine = engine_on(disk)
    engine.create_topic("orders", partitions=2)
    engine.create_topic("clicks")
    engine.close()
    return engine_on(disk)


def stage(area: StagingArea, write: WriteId, task: int) -> StagedFile:
    writer = area.stage(write, task)
    for topic, number, text in TASKS[task]:
        for batch in encode_lines(text.encode(), timestamp=1_700_000_000_000):
            writer.append(TopicPartition(topic, number), batch)
    return writer.finish()


def submit(disk: SimulatedDisk, write: WriteId) -> StagingArea:
    """What a writer does: every task stages, then one asks."""
    area = StagingArea(DATA, disk)
    area.submit(write, [stage(area, write, task) for task in TASKS])
    return area


def values(engine: LogManager) -> dict[tuple[str, int], list[str]]:
    return {
        (name, number): read_lines(partition)
        for name, topic in engine.topics().items()
        for number, partition in topic.partitions().items()
    }


def files_of_writes(disk: SimulatedDisk) -> list[str]:
    names = (entry.name for entry in disk.list_directory(DATA))
    return [name for name in names if parse_write_file(name)]


@pytest.mark.parametrize("write", [BATCH, ONCE], ids=["micro-batch", "once"])
def test_a_write_is_appended_in_task_order(write):
    """Into every partition, by the owner's duty; no file of it stays."""
    disk = SimulatedDisk()
    engine = populated(disk)
    area = submit(disk, write)
    assert area.state(write) is WriteState.REQUESTED
    engine.maintenance(Timestamp(1_700_000_000_000))
    assert EXPECTED == values(engine)
    assert [] == files_of_writes(disk)
    assert area.state(write) is (WriteState.UNKNOWN if write.batch is None else WriteState.COMMITTED)


def test_a_replayed_micro_batch_is_no_write():
    """Committed is committed: neither the same batch nor an earlier one of the query is appended."""
    disk = SimulatedDisk()
    engine = populated(disk)
    submit(disk, BATCH)
    engine.commit_staged_writes()
    for batch in (3, 1):
        submit(disk, BATCH._replace(batch=batch))
        engine.commit_staged_writes()
    assert EXPECTED == values(engine)
    assert StagingArea(DATA, disk).state(BATCH) is WriteState.COMMITTED


def test_other_micro_batches_and_queries_are_writes_of_their_own():
    """The next batch, and the same number of another query."""
    disk = SimulatedDisk()
    engine = populated(disk)
    for write in (BATCH, BATCH._replace(batch=4), WriteId("other", 3), ONCE, WriteId("twice")):
        submit(disk, write)
        engine.commit_staged_writes()
    assert {where: len(found) for where, found in values(engine).items()} == {
        where: 5 * len(found) for where, found in EXPECTED.items()
    }


@pytest.mark.parametrize("end", End, ids=str)
def test_a_replayed_write_is_there_once_wherever_it_died(end):
    """A crash after any step of staging, handing in and appending; then the query is restarted and replays."""

    def run(disk: MortalDisk, engine: LogManager) -> None:
        submit(disk, BATCH)
        engine.commit_staged_writes()
        engine.close()

    for disk, _ in every_death(run, end=end):
        engine = engine_on(disk)
        submit(disk, BATCH)
        engine.commit_staged_writes()
        assert EXPECTED == values(engine)
        assert [] == files_of_writes(disk)
        engine.close()


@pytest.mark.parametrize("end", End, ids=str)
def test_a_write_that_is_not_replayed_is_there_whole_or_not_at_all(end):
    """Whole as soon as `submit` returned, whatever happens then."""
    handed_in = []

    def run(disk: MortalDisk, engine: LogManager) -> None:
        handed_in.clear()
        handed_in.append(submit(disk, ONCE))
        engine.commit_staged_writes()

    outcomes = set()
    for disk, _ in every_death(run, end=end):
        engine = engine_on(disk)
        engine.commit_staged_writes()
        found = values(engine)
        outcomes.add(found == EXPECTED)
        assert found == EXPECTED if handed_in else found in (EXPECTED, BEFORE)
        engine.close()
    assert {True, False} == outcomes


def test_two_crashes_in_a_row_do_not_double():
    """The one that goes on dies too, anywhere; the log has then parts of both."""
    for first in range(8, MAX_STEPS, 5):
        disk = MortalDisk(seed=first)
        engine = populated(disk)
        submit(disk, BATCH)
        if not dies(disk, engine.commit_staged_writes, first):
            break
        disk.crash(keep=1.0)
        engine = engine_on(disk)
        for second in range(0, 60, 7):
            if not dies(disk, engine.commit_staged_writes, second):
                break
            disk.crash()
            engine = engine_on(disk)
        engine.commit_staged_writes()
        assert EXPECTED == values(engine)


def test_others_may_append_between_a_crash_and_the_end():
    """What is there is found by its producer, not by counting offsets."""
    disk = MortalDisk()
    engine = populated(disk)
    append_lines(engine.partition("orders", 0), "old\n")
    submit(disk, BATCH)
    steps = next(
        steps
        for steps in range(MAX_STEPS)
        if dies(disk, engine.commit_staged_writes, steps) and read_lines(engine.partition("orders", 0))[1:]
    )
    assert steps
    disk.crash(keep=1.0)
    engine = engine_on(disk)
    append_lines(engine.partition("orders", 0), "between\n")
    engine.commit_staged_writes()
    found = values(engine)
    assert sorted(found["orders", 0]) == sorted(["old", "between", "a", "b", "d"])
    assert found["orders", 1] == EXPECTED["orders", 1]


def half_appended() -> MortalDisk:
    """The disk of an owner that was killed when `orders-0` had the write's first batch."""
    for steps in range(MAX_STEPS):
        disk = MortalDisk()
        engine = populated(disk)
        submit(disk, BATCH)
        if dies(disk, engine.commit_staged_writes, steps) and read_lines(engine.partition("orders", 0)):
            disk.crash(keep=1.0)
            return disk
    raise AssertionError("it never was half done")


def test_what_a_log_has_forgotten_is_not_appended_again():
    """Producers expire; which records are there already is seen by the records themselves."""
    disk = half_appended()
    engine_on(disk).close()
    engine = engine_on(disk, clock=ManualClock(ManualClock().now + 30 * DAY_MS))
    assert ["a", "b"] == read_lines(engine.partition("orders", 0))
    engine.commit_staged_writes()
    assert EXPECTED == values(engine)


def test_a_request_for_a_committed_write_that_comes_late_is_no_write():
    """Who was killed as it handed in may have looked before the other committed: the same write is asked for again."""
    disk = SimulatedDisk()
    engine = populated(disk)
    submit(disk, BATCH)
    late = {name: disk.read_bytes(DATA / name) for name in files_of_writes(disk)}
    engine.commit_staged_writes()
    for name, content in late.items():
        disk.write_bytes(DATA / name, content, sync=True)
    engine.commit_staged_writes()
    assert EXPECTED == values(engine)
    assert [] == files_of_writes(disk)


def test_a_manifest_is_gone_for_good_before_its_staged_files_go():
    """One that came back after a crash without them could never be done."""
    disk = SimulatedDisk()
    engine = populated(disk)
    submit(disk, ONCE)
    engine.commit_staged_writes()
    calls = [
        name if name == "sync_directory" else path.rpartition(".")[2]
        for name, path in disk.calls
        if (name, path) == ("sync_directory", str(DATA)) or (name == "unlink" and "topicfs.write." in path)
    ]
    assert ["claimed", "sync_directory", "staged", "staged"] == calls[calls.index("claimed") :][:4]


@pytest.mark.parametrize("end", [End.POWER_LOSS, End.POWER_LOSS_KEEPING_NOTHING], ids=str)
def test_what_others_appended_is_on_disk_before_a_write_begins(end: End):
    """Else the ends that it noted would lie behind its own records, which would not be found again there."""
    begun = 0

    def run(disk: MortalDisk, engine: LogManager) -> None:
        append_lines(engine.partition("orders", 0), "old\nolder\noldest\n")
        submit(disk, BATCH)
        engine.commit_staged_writes()

    for disk, _ in every_death(run, end=end):
        path = DATA / write_file(BATCH, WriteFileKind.CLAIMED)
        manifest = decode_manifest(disk.read_bytes(path), file=path) if disk.exists(path) else None
        engine = engine_on(disk)
        if manifest is not None and manifest.begun is not None:
            begun += 1
            found = {
                one: engine.partition(*one).offsets().log_end_offset for one in manifest.begun.end_offsets
            }
            assert all(end <= found[one] for one, end in manifest.begun.end_offsets.items())
            assert ["old", "older", "oldest"] == read_lines(engine.partition("orders", 0))[:3]
        engine.close()
    assert begun


def big(area: StagingArea) -> StagedFile:
    writer = area.stage(ONCE, 0)
    writer.append(TopicPartition("clicks", 0), encode_lines(b"fits\n", timestamp=0)[0])
    writer.append(TopicPartition("orders", 1), encode([Record(Offset(0), Timestamp(0), None, b"x" * 5000)]))
    return writer.finish()


def unknown(area: StagingArea) -> StagedFile:
    writer = area.stage(ONCE, 0)
    writer.append(TopicPartition("clicks", 0), encode_lines(b"fits\n", timestamp=0)[0])
    writer.append(TopicPartition("nowhere", 0), encode_lines(b"lost\n", timestamp=0)[0])
    return writer.finish()


def internal(area: StagingArea) -> StagedFile:
    writer = area.stage(ONCE, 0)
    writer.append(TopicPartition("__consumer_offsets", 0), encode_lines(b"x\n", timestamp=0)[0])
    return writer.finish()


def damaged(area: StagingArea) -> StagedFile:
    staged = stage(area, ONCE, 0)
    path = DATA / staged.name
    area.files.write_bytes(path, area.files.read_bytes(path).replace(b"b", b"B"))
    return staged


def cut_short(area: StagingArea) -> StagedFile:
    staged = stage(area, ONCE, 0)
    path = DATA / staged.name
    area.files.write_bytes(path, area.files.read_bytes(path)[:-1])
    return staged


def vanished(area: StagingArea) -> StagedFile:
    staged = stage(area, ONCE, 0)
    area.discard([staged.name])
    return staged


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (big, r"orders-1: batch of \d+ bytes, max.message.bytes is 1000"),
        (unknown, "nowhere: no such topic"),
        (internal, "Kafka's own"),
        (damaged, "checksum"),
        (cut_short, "handed in as"),
        (vanished, "No such file"),
    ],
)
def test_a_write_that_may_not_be_appended_is_refused_whole(
    prepare: Callable[[StagingArea], StagedFile], reason: str
):
    """Nothing of it is in any log, whoever handed it in learns why, and no file stays."""
    disk = SimulatedDisk()
    engine = populated(disk)
    engine.create_topic("__consumer_offsets")
    engine.alter_config("orders", {"max.message.bytes": "1000"})
    area = StagingArea(DATA, disk)
    area.submit(ONCE, [prepare(area)])
    engine.commit_staged_writes()
    assert area.state(ONCE) is WriteState.REFUSED
    error = area.take_refusal(ONCE)
    with pytest.raises(type(error), match=reason):
        raise error
    assert all(not lines for lines in values(engine).values())
    assert [] == files_of_writes(disk)


@pytest.mark.parametrize("free_bytes", [0, 512, BESIDE_BYTES])
def test_a_write_that_does_not_fit_the_disk_is_refused_whole(free_bytes: int):
    """With the sizes, before a record is visible; when there is room, its replay is appended."""
    disk = SimulatedDisk()
    engine = populated(disk)
    area = submit(disk, BATCH)
    disk.fill(free_bytes)
    Committer(area, lambda name: engine.partition(*name), _no_topic, clock=ManualClock()).commit(BATCH)
    assert BEFORE == values(engine)
    assert area.state(BATCH) is WriteState.REFUSED
    said = str(area.take_refusal(BATCH))
    assert re.search(r"/data: the write has \d+ bytes of batches .* but \d+ bytes are free on the disk", said)
    assert [] == files_of_writes(disk)
    disk.fill(None)
    submit(disk, BATCH)
    engine.commit_staged_writes()
    assert EXPECTED == values(engine)


def test_a_refused_micro_batch_may_come_again():
    """Once the cause is gone, its replay is appended."""
    disk = SimulatedDisk()
    engine = populated(disk)
    engine.delete_topic("clicks")
    area = submit(disk, BATCH)
    engine.commit_staged_writes()
    assert area.state(BATCH) is WriteState.REFUSED
    engine.create_topic("clicks")
    submit(disk, BATCH)
    engine.commit_staged_writes()
    assert EXPECTED == values(engine)


@pytest.mark.parametrize("operation", ["pwrite", "sync", "rename", "write_bytes", "sync_directory", "unlink"])
def test_a_disk_that_fails_once_costs_nothing(operation):
    """An I/O error at any call: the write is refused before its first record, or gone on with, never doubled."""
    for after in range(40):
        disk = SimulatedDisk()
        engine = populated(disk)
        area = submit(disk, ONCE)
        disk.fail(operation, after=after, number=28)
        engine.commit_staged_writes()
        disk.heal()
        disk.crash(keep=1.0)
        engine = engine_on(disk)
        engine.commit_staged_writes()
        expected = BEFORE if area.state(ONCE) is WriteState.REFUSED else EXPECTED
        assert values(engine) == expected, after


def test_a_withdrawn_write_is_gone():
    """Before it is claimed that works; afterwards it does not."""
    disk = SimulatedDisk()
    engine = populated(disk)
    area = submit(disk, ONCE)
    assert area.withdraw(ONCE)
    engine.commit_staged_writes()
    assert BEFORE == values(engine)
    submit(disk, ONCE)
    assert area.claim(ONCE) is not None
    assert not area.withdraw(ONCE)


def test_a_topic_deleted_in_between_takes_its_records_with_it():
    """The rest of the write goes on."""
    disk = MortalDisk()
    engine = populated(disk)
    submit(disk, BATCH)
    for steps in range(MAX_STEPS):
        assert dies(disk, engine.commit_staged_writes, steps)
        if read_lines(engine.partition("orders", 0)):
            break
    disk.crash(keep=1.0)
    engine = engine_on(disk)
    engine.delete_topic("orders")
    engine.commit_staged_writes()
    assert {("clicks", 0): ["g"]} == values(engine)
    assert [] == files_of_writes(disk)


def test_batches_carry_one_producer_a_query():
    """An id that stays, an epoch a micro-batch, sequences from 0: what a broker knows as idempotence."""
    disk = SimulatedDisk()
    engine = populated(disk)
    for batch in (3, 4):
        submit(disk, BATCH._replace(batch=batch))
        engine.commit_staged_writes()
    headers = list(scan(engine.partition("orders", 0).read(Offset(0), max_bytes=1 << 20).data))
    assert [(0, 0), (0, 2), (1, 0), (1, 2)] == [(one.producer_epoch, one.base_sequence) for one in headers]
    assert 1 == len({one.producer_id for one in headers})
    assert headers[0].producer_id >= 2**62


def test_abandoned_staged_files_go_after_a_week():
    """Those that nobody handed in; one that is waiting stays."""
    disk, clock = SimulatedDisk(), ManualClock()
    populated(disk).close()
    engine = engine_on(disk, clock=clock)
    staged = stage(StagingArea(DATA, disk), ONCE, 0)
    clock.now = disk.time + ABANDONED_AFTER_MS
    engine.commit_staged_writes()
    assert [staged.name] == files_of_writes(disk)
    clock.advance(1)
    engine.commit_staged_writes()
    assert [] == files_of_writes(disk)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"version": 2}', b'{"version": 1, "queries": {"q": 1}}'])
def test_a_damaged_record_is_told(content):
    """With its name, and nothing is appended on a guess."""
    disk = SimulatedDisk()
    engine = populated(disk)
    disk.write_bytes(DATA / "topicfs.writes", content)
    with pytest.raises(CorruptionError, match=r"topicfs\.writes"):
        submit(disk, BATCH)
    assert BEFORE == values(engine)


@pytest.mark.parametrize(
    "content",
    [b"{", b'{"version": 2}', b'{"version": 1, "files": [{"name": "../x", "size": 1, "checksum": 1}]}'],
)
def test_a_damaged_manifest_is_told_and_stays(content):
    """As a warning of the owner's; other writes go on."""
    disk = SimulatedDisk()
    engine = populated(disk)
    path = DATA / write_file(ONCE, WriteFileKind.REQUESTED)
    disk.write_bytes(path, content)
    submit(disk, BATCH)
    engine.commit_staged_writes()
    assert EXPECTED == values(engine)
    assert any("e59ff979" in line for line in engine.warnings)


@pytest.mark.parametrize("query", ["", "a b", "a/b", "a.b", "x" * 65])
def test_a_query_id_that_makes_no_file_name_is_refused(query):
    """It comes from outside; a path could lead anywhere."""
    with pytest.raises(ValueError, match="names no file"):
        write_file(WriteId(query, 0), WriteFileKind.REQUESTED)


@pytest.mark.parametrize(
    "name",
    [
        "topicfs.write.q.requested",
        "topicfs.write.q.01.requested",
        "topicfs.write.q.1.staged",
        "topicfs.write.q.1.p.claimed",
        "topicfs.write.q.1.requested.tmp",
    ],
)
def test_other_names_are_none_of_ours(name):
    """A half-written manifest above all."""
    assert parse_write_file(name) is None


def test_a_record_without_a_time_is_taken():
    """NO_TIMESTAMP is a producer's right."""
    disk = SimulatedDisk()
    engine = populated(disk)
    area = StagingArea(DATA, disk)
    writer = area.stage(ONCE, 0)
    writer.append(TopicPartition("clicks", 0), encode([Record(Offset(0), NO_TIMESTAMP, b"k", None)]))
    area.submit(ONCE, [writer.finish()])
    engine.commit_staged_writes()
    assert [""] == read_lines(engine.partition("clicks", 0))


def _no_topic(name: str, topic: NewTopic) -> None:
    raise AssertionError(f"nobody makes topics here: {name}, {topic}")


def every_death(
    run: Callable[[MortalDisk, LogManager], None], *, end: End
) -> Iterator[tuple[MortalDisk, int]]:
    """The disk after the process, or the machine, died before each of the steps of `run`."""
    for steps in range(MAX_STEPS):
        disk = MortalDisk(seed=steps)
        engine = populated(disk)
        if not dies(disk, lambda: run(disk, engine), steps):  # noqa: B023
            return
        end.of(disk)
        yield disk, steps
    raise AssertionError("it never comes to its end")
