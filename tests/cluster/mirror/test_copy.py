"""Tests of the copy of one partition, and of rare answers of brokers."""

from __future__ import annotations

import pytest

from tests.doubles.logs import LogOnDisk
from tests.doubles.records import sized_batch
from topicfs.cluster.brokers.brokers import Leader
from topicfs.cluster.brokers.fetch import FetchedPartition
from topicfs.cluster.errors import WrittenByOthersError
from topicfs.cluster.mirror.copy import MirroredPartition, _contradict
from topicfs.storage.checkpoints.leader_epochs import EpochEnd
from topicfs.storage.codec.batch import read_header
from topicfs.storage.model import Offset

NOBODY = None
"""Stands for the brokers, which these tests never ask."""


def answer(records=b"", *, error=0, high_watermark=100, log_start=0, diverging=None):
    return FetchedPartition(
        error=error,
        high_watermark=Offset(high_watermark),
        last_stable_offset=Offset(high_watermark),
        log_start_offset=Offset(log_start),
        records=memoryview(bytes(records)),
        aborted=(),
        diverging=diverging,
    )


class Copy:
    """A copy on a simulated disk, with one-record batches of the given epochs."""

    def __init__(self, *epochs):
        self.on_disk, self.said = LogOnDisk(), []
        self.log = self.on_disk.log
        for offset, epoch in enumerate(epochs):
            self.log.appender.append_as_follower(sized_batch(150, offset=offset, epoch=epoch))
        self.copy = MirroredPartition(self.log, "id", placed=True, verified=True, report=self.said.append)

    def take(self, answer, epoch=9):
        self.copy.take(answer, NOBODY, Leader(1, epoch))


def test_whole_batches_are_appended_and_a_torn_one_comes_again():
    """Whole batches are appended at their own offsets; a batch that the answer cuts off is fetched again."""
    made = Copy()
    batches = [sized_batch(150, offset=offset, epoch=1) for offset in range(3)]
    made.take(answer(b"".join(batches)[:-20]))
    assert (2, 300) == (made.log.log_end_offset, made.copy.copied_bytes)
    assert (2, 1) == made.copy.wanted(Leader(1, 9))[2:5:2]
    made.take(answer(batches[2]))
    assert 3 == made.log.log_end_offset


def test_a_batch_that_arrives_twice_is_skipped():
    """A batch that arrives twice is skipped the second time."""
    made = Copy(1, 1)
    made.take(answer(sized_batch(150, offset=1, epoch=1) + sized_batch(150, offset=2, epoch=1)))
    assert 3 == made.log.log_end_offset


def test_a_damaged_batch_is_not_kept():
    """A damaged batch is fetched again instead of stored; if it stays damaged, the cause is reported."""
    made = Copy(1)
    batch = sized_batch(150, offset=1, epoch=1)
    batch[100] ^= 1
    for _ in range(8):
        made.take(answer(batch))
    assert 1 == made.log.log_end_offset
    assert not made.copy.due
    assert [True] == ["checksum" in line for line in made.said]


@pytest.mark.parametrize("epoch", [-2, 10, 2**31 - 1])
def test_an_impossible_leader_epoch_is_damage(epoch):
    """An impossible leader epoch counts as damage. No checksum covers epochs, and later comparisons rely on them."""
    made = Copy(1)
    batch = sized_batch(150, offset=1, epoch=1)
    batch[12:16] = epoch.to_bytes(4, "big", signed=True)
    made.take(answer(batch), epoch=9)
    assert (1, 1) == (made.log.log_end_offset, made.log.epochs.latest.epoch)
    assert f"leader epoch {epoch} in a batch from the leader of epoch 9" in made.copy.problem


@pytest.mark.parametrize(
    ("diverging", "end"),
    [
        (EpochEnd(3, Offset(3)), 3),  # The leader's epoch ends before the copy's end.
        (EpochEnd(2, Offset(5)), 2),  # The copy's last epoch ends before the leader's end of that epoch.
        (EpochEnd(1, Offset(1)), 1),
        (EpochEnd(0, Offset(0)), 0),  # The epoch is older than all epochs of the copy.
    ],
)
def test_an_unclean_election_truncates_to_the_last_common_epoch(diverging, end):
    """After an unclean election the copy truncates to where its epochs and the leader's agree, as a follower does."""
    made = Copy(1, 1, 3, 3, 3)
    made.take(answer(diverging=diverging), epoch=4)
    assert end == made.log.log_end_offset
    assert 1 == len(made.said)
    assert f"cut back from 5 to {end}" in made.said[0]
    made.take(answer(sized_batch(150, offset=end, epoch=4)), epoch=4)
    assert (end + 1, 4) == (made.log.log_end_offset, made.log.epochs.latest.epoch)


def test_a_new_leader_whose_log_ends_where_ours_does_cuts_nothing():
    """If a new leader's log ends at the copy's end, nothing is truncated or reported."""
    made = Copy(1, 1, 3, 3, 3)
    made.take(answer(diverging=EpochEnd(3, Offset(5))), epoch=4)
    assert (5, []) == (made.log.log_end_offset, made.said)


def test_a_log_that_diverges_without_an_election_is_an_error():
    """If the copy diverges from the source within one leader epoch, another program has written to the copy.

    This is an error, and the copy is not truncated.
    """
    made = Copy(1, 1, 3)
    with pytest.raises(WrittenByOthersError, match="something other than the mirror wrote there"):
        made.take(answer(diverging=EpochEnd(3, Offset(2))), epoch=3)
    assert 3 == made.log.log_end_offset


def test_temporary_errors_are_not_reported_immediately():
    """A moved leader is searched for without a report, whereas a missing right is reported once."""
    made = Copy(1)
    made.take(answer(error=6))
    assert ([], True, False) == (made.said, made.copy.stale, made.copy.refused)
    made.take(answer(error=29))
    made.take(answer(error=29))
    assert made.copy.refused
    assert ["orders-0: the cluster answers TOPIC_AUTHORIZATION_FAILED"] == [
        one.split(";")[0] for one in made.said
    ]
    made.take(answer())
    assert (None, False) == (made.copy.problem, made.copy.refused)


def test_a_gap_before_the_sources_end_is_no_reason_to_wait():
    """A mirror does not wait for the records of a gap before the source's end.

    Compaction may have removed these records.
    """
    made = Copy(1)
    made.take(answer(high_watermark=3))
    assert not made.copy.complete
    made.copy.has_all(answer(error=6))
    made.copy.has_all(answer(diverging=EpochEnd(1, Offset(1))))
    assert not made.copy.complete
    made.copy.has_all(None)
    assert made.copy.complete


def test_an_answer_that_ends_at_the_copys_end_is_all():
    """An answer without new records completes a copy: brokers omit unchanged partitions only in fetch sessions."""
    made = Copy(1)
    made.take(answer(high_watermark=3))
    made.copy.has_all(answer(high_watermark=3))
    assert made.copy.complete


HONEST = sized_batch(150, offset=4, epoch=1)


def header(data=HONEST, **changes):
    return read_header(bytes(data))._replace(**changes)


@pytest.mark.parametrize(
    ("ours", "theirs", "contradict"),
    [
        pytest.param({}, {"checksum": 7}, True, id="other records"),
        pytest.param({}, {"checksum": 7, "leader_epoch": 2}, False, id="of another leader"),
        pytest.param({}, {"base_offset": 5, "last_offset": 5}, False, id="ours was compacted away"),
        pytest.param({}, {"base_offset": 3}, True, id="ours begins within theirs"),
        pytest.param(
            {"last_offset": 9},
            {"last_offset": 9, "checksum": 7},
            False,
            id="some records were compacted away",
        ),
        pytest.param({"last_offset": 9}, {"last_offset": 8}, True, id="another end"),
        pytest.param({"last_offset": 9}, {"last_offset": 9, "producer_id": 7}, True, id="another producer"),
        pytest.param({}, {"attributes": 64, "checksum": 7}, False, id="an expired tombstone"),
    ],
)
def test_what_compaction_can_make_of_a_batch(ours, theirs, contradict):
    """Two batches at an offset contradict each other if compaction cannot have turned one into the other."""
    assert contradict == _contradict(header(**ours), header(**theirs))
