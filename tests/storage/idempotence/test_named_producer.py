"""Tests that a named producer appends each line of a file once, at whatever step a run ends."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doubles.compacted_log import CompactedLog
from tests.doubles.logs import DIRECTORY, LogOnDisk, records_of
from tests.doubles.mortal_disk import End, MortalDisk, dies
from topicfs.storage.codec.records import decode, encode, encode_lines
from topicfs.storage.errors import CorruptionError, ProducerFencedError
from topicfs.storage.idempotence.producer import InputChangedError, NamedProducer, whole_lines
from topicfs.storage.idempotence.registry import ProducerRegistry
from topicfs.storage.model import Offset, Record, Timestamp
from topicfs.storage.producers.progress import ProgressLostError

DATA = Path("/data")
DAY_MS = 24 * 3600 * 1000


class Lines:
    """An encoder that makes a value of each line, and uses the partitions in turn."""

    def encode(self, lines, partition):
        return encode_lines(lines, timestamp=partition.clock.now, max_batch_bytes=300)

    def choose(self, lines, first_record, partitions):
        return [(first_record + n) % partitions for n in range(len(lines))]


class KeyedLines(Lines):
    """An encoder that makes a key and a value of each line. A space separates them in the line."""

    def encode(self, lines, partition):
        pairs = [tuple(line.split(b" ")) for line in lines.splitlines()]
        now = Timestamp(partition.clock.now)
        return [encode([Record(Offset(0), now, key, value)]) for key, value in pairs]


class KilledError(Exception):
    pass


class Killed:
    """A partition that raises KilledError after a number of appends. The appended records stay in the log."""

    def __init__(self, log, clock, budget):
        self._log, self.clock, self._budget = log, clock, budget

    def __getattr__(self, name):
        return getattr(self._log, name)

    def append(self, batches):
        if self._budget[0] <= 0:
            raise KilledError
        self._budget[0] -= 1
        return self._log.append(batches)


def producer_of(logs, *, appends=10**9, name="p", source="file > t@T"):
    """Return a producer of these logs; a run is killed after `appends` appends."""
    budget = [appends]
    partitions = {number: Killed(each.log, each.clock, budget) for number, each in enumerate(logs)}
    return NamedProducer(ProducerRegistry(logs[0].disk, lambda: [DATA]), name, source, partitions)


def append_lines(producer, text, *, lines=None, block=64):
    return producer.append_file(io.BytesIO(text), lines or Lines(), lambda stream: whole_lines(stream, block))


def values_of(on_disk):
    return [value for _, value in records_of(on_disk.log)]


class Setup:
    """One partition, and the runs of a producer that appends to it."""

    def __init__(self, disk=None, log=None):
        self.on_disk = log or LogOnDisk(disk=disk)

    def run(self, text, *, lines=None, block=64, **options):
        return append_lines(producer_of([self.on_disk], **options), text, lines=lines, block=block)

    def run_that_is_killed(self, text, *, appends, **options):
        with pytest.raises(KilledError):
            self.run(text, appends=appends, **options)

    def expire_producers(self):
        self.on_disk.clock.advance(2 * DAY_MS)
        self.on_disk.log.appender.remove_expired_producers(self.on_disk.clock())

    def values(self):
        return values_of(self.on_disk)


TEXT = b"".join(b"line %d\n" % n for n in range(40))
VALUES = TEXT.split(b"\n")[:-1]


def test_a_second_run_appends_nothing():
    """A second run reads the position, appends nothing, and uses the next epoch."""
    setup = Setup()
    first, second = setup.run(TEXT), setup.run(TEXT)
    assert (40, 0) == (first.appended, first.epoch)
    assert (0, 0, 1) == (second.appended, second.passed_over, second.epoch)
    assert VALUES == setup.values()


def test_a_file_that_has_grown_goes_on():
    """A second run over a file that has grown appends only the new lines."""
    setup = Setup()
    setup.run(TEXT[: TEXT.index(b"line 20\n")])
    assert 20 == setup.run(TEXT).appended
    assert VALUES == setup.values()


@pytest.mark.parametrize("appends", range(9))
def test_whatever_was_appended_before_a_kill_is_passed_over(appends):
    """Lines that were appended before a kill are found in the log, although the registry was not written."""
    setup = Setup()
    setup.run_that_is_killed(TEXT, appends=appends, block=32)
    there = len(setup.values())
    setup.on_disk.kill()
    done = setup.run(TEXT)
    assert (done.passed_over, done.appended) == (there, 40 - there)
    assert VALUES == setup.values()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 8), max_size=6), st.integers(20, 200))
def test_any_number_of_kills_adds_no_line_twice(kills, block):
    """After any number of kills each line is in the log once."""
    setup = Setup()
    for appends in kills:
        try:
            setup.run(TEXT, appends=appends, block=block)
        except KilledError:
            setup.on_disk.kill()
    setup.run(TEXT, block=block)
    assert VALUES == setup.values()


def test_a_power_loss_may_take_records_back():
    """Lines that a power loss removed are appended again, because the registry refers only to records on disk."""
    setup = Setup()
    setup.run_that_is_killed(TEXT, appends=4)
    setup.on_disk.crash(keep=0.0)
    setup.run(TEXT)
    assert VALUES == setup.values()


@pytest.mark.parametrize("end", End, ids=str)
def test_each_line_is_there_once_whatever_ends_a_run(end):
    """After a kill or power loss at any step the next run leaves each line in the log once."""
    for steps in range(200):
        setup = Setup(MortalDisk(seed=steps))
        setup.on_disk.disk.sync_directory(DIRECTORY)
        ended = dies(setup.on_disk.disk, lambda: setup.run(TEXT), steps)  # noqa: B023
        end.of(setup.on_disk.disk)
        setup.on_disk.kill()
        setup.run(TEXT)
        assert VALUES == setup.values(), steps
        if not ended:
            assert steps > 20
            return
    raise AssertionError("not complete after 200 steps")


def test_a_topics_lines_stay_with_their_partitions():
    """If lines go to several partitions, each partition skips the lines that it already has."""
    logs = [LogOnDisk(), LogOnDisk()]
    for appends in (3, 1, 5):
        with pytest.raises(KilledError):
            append_lines(producer_of(logs, appends=appends), TEXT)
    append_lines(producer_of(logs), TEXT)
    assert [VALUES[::2], VALUES[1::2]] == [values_of(each) for each in logs]


def test_partitions_that_came_meanwhile_wait_for_the_next_run():
    """If a run repeats a killed run, it does not use partitions that were added in between.

    Each line then goes to the same partition as before, so the run finds the lines to skip.
    """
    logs = [LogOnDisk(), LogOnDisk()]
    with pytest.raises(KilledError):
        append_lines(producer_of(logs[:1], appends=3), TEXT)
    append_lines(producer_of(logs), TEXT)
    assert VALUES == values_of(logs[0])


def test_a_lingering_run_is_fenced():
    """Batches of an old run are refused because the next run has a newer epoch."""
    setup = Setup()
    old = producer_of([setup.on_disk])
    setup.run(TEXT[:7])
    with pytest.raises(ProducerFencedError, match="fenced by epoch 1"):
        append_lines(old, TEXT)
    assert 1 == len(setup.values())


def test_another_file_is_refused():
    """A file is refused if it ends before the stored position, or if its content before this position has changed."""
    setup = Setup()
    setup.run(TEXT)
    for other in (TEXT[:-1], TEXT.replace(b"line 39", b"LINE 39") + b"more\n"):
        with pytest.raises(InputChangedError, match="not the file that producer p read up to byte"):
            setup.run(other)
    assert VALUES == setup.values()


def test_records_that_were_deleted_are_not_appended_again():
    """Lines of deleted records are not appended again, because the log knows the producer's last sequence."""
    setup = Setup()
    setup.run_that_is_killed(TEXT, appends=4)
    setup.on_disk.log.delete_records(Offset(2))
    there = setup.values()
    setup.run(TEXT)
    assert VALUES[2:] == setup.values()
    assert VALUES[2 : 2 + len(there)] == there


def test_deleted_records_of_an_expired_producer_are_reported():
    """If both the producer's state and its records are gone from the log, the run stops and appends nothing."""
    setup = Setup()
    setup.run_that_is_killed(TEXT, appends=4)
    setup.on_disk.log.delete_records(setup.on_disk.log.log_end_offset)
    setup.expire_producers()
    with pytest.raises(ProgressLostError, match="has expired.*under another --producer name"):
        setup.run(TEXT)
    assert [] == setup.values()


def test_a_producer_that_has_expired_goes_on_where_nothing_was_removed():
    """If the producer's state has expired but its records are stored, its last batch gives the position."""
    setup = Setup()
    setup.run_that_is_killed(TEXT, appends=4)
    setup.expire_producers()
    setup.run(TEXT)
    assert VALUES == setup.values()


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("others", [False, True])
def test_compaction_of_what_a_killed_run_appended_appends_nothing_again(expired, others):
    """Records of a killed run are not appended again after a compaction. A run that cannot know its position stops."""
    setup = Setup(log=CompactedLog(delete_retention_ms=0))
    log = setup.on_disk
    text = b"".join(b"k%d %d\n" % (n % 3, n) for n in range(90))
    setup.run_that_is_killed(text, appends=7, lines=KeyedLines())
    if others:
        log.put((b"k0", b"newer"), (b"k9", b"x"))
    before = log.table()
    log.log.appender.roll()
    if expired:
        setup.expire_producers()
    log.clean()
    assert before == log.table()
    appended = log.log.log_end_offset
    if expired and others:
        with pytest.raises(ProgressLostError):
            setup.run(text, lines=KeyedLines())
        assert appended == log.log.log_end_offset
        return
    outcome = setup.run(text, lines=KeyedLines())
    assert (7, 83) == (outcome.passed_over, outcome.appended)
    assert appended + outcome.appended == log.log.log_end_offset


def test_each_input_has_its_own_producer_id():
    """Each input has its own producer ID, so that records of one input never count for another input."""
    setup = Setup()
    setup.run(TEXT[: TEXT.index(b"line 20\n")])
    setup.run(b"another\n" * 30, source="another > t/0@T")
    assert (20, 0) == setup.run(TEXT)[:2]
    assert [b"another"] * 30 == [each for each in setup.values() if each not in VALUES]
    assert VALUES == [each for each in setup.values() if each in VALUES]


def test_a_power_loss_after_a_killed_run_was_noted_loses_nothing():
    """The next run first flushes the records of a killed run, and only then notes them in the registry."""
    for steps in range(200):
        setup = Setup(MortalDisk())
        setup.on_disk.disk.sync_directory(DIRECTORY)
        setup.run_that_is_killed(TEXT, appends=4)
        setup.on_disk.kill()
        ended = dies(setup.on_disk.disk, lambda: setup.run(TEXT), steps)  # noqa: B023
        setup.on_disk.crash(keep=0.0)
        setup.run(TEXT)
        assert VALUES == setup.values(), steps
        if not ended:
            return
    raise AssertionError("not complete after 200 steps")


def test_a_log_that_lost_what_was_on_disk_is_reported():
    """If a log ends before the offset that an earlier run recorded, the log has lost records, and the run stops."""
    setup = Setup()
    setup.run(TEXT)
    setup.on_disk.log.replacer.truncate_to(Offset(30))
    there = setup.values()
    with pytest.raises(ProgressLostError, match="ended at offset 40 after an earlier run and ends at 30 now"):
        setup.run(TEXT + b"more\n")
    assert there == setup.values()


def test_producer_names_have_different_ids():
    """Two producer names have different IDs, so each name can append all lines of the same file."""
    setup = Setup()
    assert setup.run(TEXT).producer_id != setup.run(TEXT, name="q").producer_id
    assert VALUES * 2 == setup.values()


def test_epochs_that_are_used_up_bring_a_new_id():
    """After epoch 32767 the producer gets a new ID."""
    setup = Setup()
    first = setup.run(TEXT[:7])
    path = DATA / "topicfs.producers"
    content = setup.on_disk.disk.read_bytes(path).replace(b'"epoch": 0', b'"epoch": 32767')
    setup.on_disk.disk.write_bytes(path, content)
    second = setup.run(TEXT[:7] + b"x\n")
    assert (0, True) == (second.epoch, second.producer_id != first.producer_id)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'{"version": 1, "producers": {}}', b'{"version": 2, "producers": {"p": 1}}'],
)
def test_a_damaged_registry_is_reported(content):
    """The error for a damaged registry names the registry, and nothing is appended."""
    setup = Setup()
    setup.on_disk.disk.write_bytes(DATA / "topicfs.producers", content)
    with pytest.raises(CorruptionError, match=r"topicfs\.producers"):
        setup.run(TEXT)


def test_records_carry_sequences():
    """The records have the producer's ID and sequences, so that a broker recognizes repeats as well."""
    setup = Setup()
    setup.run(TEXT)
    headers = [
        batch
        for columns in decode(setup.on_disk.log.read(Offset(0), max_bytes=10**6).data)
        for batch in columns.batches
    ]
    assert 1 == len({batch.producer_id for batch in headers})
    assert [batch.base_sequence for batch in headers] == [batch.base_offset for batch in headers]
