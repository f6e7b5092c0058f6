"""Tests of a partition in a share group: Kafka's own test cases, and results of Kafka's classes with a manual clock."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from topicfs.coordination.records.share_state_records import StateBatch
from topicfs.coordination.shares.records.acknowledgement import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    AckBatch,
    NotAcquiredError,
)
from topicfs.coordination.shares.records.acquisition import AcquireRequest, LogBatch
from topicfs.coordination.shares.records.partition_state import Limits
from topicfs.coordination.shares.records.share_partition import SharePartition
from topicfs.coordination.shares.records.states import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE
from topicfs.storage.errors import RecordNotHeldError, StorageError

ME, OTHER = "me", "other"
LOCK = 100
LIMITS = Limits(LOCK, 5, 200)


class Bench:
    """A share partition whose writes succeed, with a clock and the batches of a log."""

    def __init__(self, *log: tuple[int, int], limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.partition = SharePartition(lambda: self.limits)
        self.log = log
        self.now = 0
        self.written: list[StateBatch] = []

    def take(
        self,
        most: int = 1 << 30,
        *,
        member: str = ME,
        fetch_offset: int | None = None,
        log: Sequence[tuple[int, int]] | None = None,
        exactly: bool = False,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> list[tuple[int, int, int]]:
        """Acquire records from the log of the bench, or from `log` if it is given."""
        batches = [LogBatch(*one) for one in (self.log if log is None else log)]
        wanted = AcquireRequest(
            member,
            most,
            batches[0].base if fetch_offset is None else fetch_offset,
            batches,
            exactly=exactly,
            aborted=[LogBatch(*one) for one in aborted],
        )
        return [tuple(one) for one in self.partition.acquire(wanted, self.now)]

    def take_each(self) -> None:
        """Acquire each batch of the log with a request of its own."""
        for one in self.log:
            self.take(log=[one])

    def take_next(self, most: int = 1 << 30, **options) -> list[tuple[int, int, int]]:
        """Acquire as a broker does: read the log from the next fetch offset on, and acquire what was read."""
        offset = self.partition.next_fetch_offset()
        batches = [one for one in self.log if one[1] >= offset]
        return self.take(most, fetch_offset=offset, log=batches, **options) if batches else []

    def say(self, *acks: tuple[int, int, int], member: str = ME) -> None:
        """Acknowledge ranges, and complete the write."""
        change = self.partition.acknowledge(
            member, [AckBatch(first, last, (kind,)) for first, last, kind in acks], self.now
        )
        self.written += change.batches
        change.commit()

    def leave(self, member: str = ME) -> None:
        change = self.partition.release(member)
        self.written += change.batches
        change.commit()

    def wait(self, milliseconds: int = LOCK) -> None:
        """Let time pass and expired locks end."""
        self.now += milliseconds
        change = self.partition.expire(self.now)
        self.written += change.batches
        change.commit()

    def offsets(self) -> tuple[int, int, int, int]:
        """Return start, end and next fetch offset, and the number of completed records."""
        one = self.partition
        return one.start_offset, one.end_offset, one.next_fetch_offset(), one.complete_count

    def states(self) -> dict[int, object]:
        """Return state and delivery count of each batch, or of each of its records, by first offset."""
        return {
            batch.first: (batch.whole.state, batch.whole.count)
            if batch.whole is not None
            else [(one.state, one.count) for one in batch.each or ()]
            for batch in self.partition.batches
        }


def loaded(
    start: int, *batches: tuple[int, int, int, int], log: Sequence[tuple[int, int]] = (), **limits: int
) -> Bench:
    bench = Bench(*log, limits=LIMITS._replace(**limits))
    bench.partition.load(start, [StateBatch(*one) for one in batches])
    return bench


def test_gaps_of_the_loaded_state_are_fetched_first():
    """Row 151: the next fetch begins at the first offset that the loaded state lacks.

    Accepted and archived records of this state are done.
    """
    bench = loaded(10, (15, 20, ACKNOWLEDGED, 2), (30, 40, ARCHIVED, 3))

    assert (10, 40, 10, 17) == bench.offsets()
    assert {15: (ACKNOWLEDGED, 2), 30: (ARCHIVED, 3)} == bench.states()


def test_holes_are_filled_one_after_the_other_and_what_the_log_lacks_is_passed_over():
    """If a fetch fills the first gap of the state, the next fetch begins at the second gap.

    The start offset moves past offsets that the log lacks.
    """
    bench = loaded(10, (15, 20, ACKNOWLEDGED, 2), (30, 40, ARCHIVED, 3), log=[(10, 14), (21, 25), (41, 50)])

    assert [(10, 14, 1)] == bench.take_next(5)
    assert 21 == bench.partition.next_fetch_offset()
    assert [(21, 25, 1)] == bench.take_next(5)
    bench.say((10, 14, ACCEPT), (21, 25, ACCEPT))
    assert [(41, 50, 1)] == bench.take_next()
    bench.say((41, 50, ACCEPT))
    assert (51, 0) == (bench.partition.start_offset, bench.partition.complete_count)


def test_done_batches_at_the_start_are_passed_over_when_they_are_loaded():
    """When a state is loaded, the start moves to the first record that is not done."""
    bench = loaded(10, (10, 14, ACKNOWLEDGED, 1), (15, 19, AVAILABLE, 1))

    assert (15, 15) == (bench.partition.start_offset, bench.partition.next_fetch_offset())


@pytest.mark.parametrize("batch", [(9, 12, 0, 1), (12, 11, 0, 1)])
def test_a_state_that_does_not_fit_its_start_offset_is_refused(batch):
    """A loaded state is refused if a batch lies below the start, or ends before its own first offset."""
    with pytest.raises(StorageError, match="contradicts"):
        loaded(10, batch)


def test_at_the_record_limit_only_released_records_are_delivered():
    """Row 152: at most twenty records are in flight; at this limit released records are delivered, but no new ones."""
    bench = Bench((10, 14), (15, 24), (25, 29), (30, 32), limits=Limits(LOCK, 5, 20))

    assert [(10, 29, 1)] == bench.take(500)
    assert 30 == bench.partition.next_fetch_offset()
    assert not bench.partition.can_acquire()
    bench.say((15, 19, RELEASE))
    assert 15 == bench.partition.next_fetch_offset()
    assert bench.partition.can_acquire()
    assert [(15, 19, 2)] == bench.take(500, fetch_offset=15)
    bench.say((29, 29, RELEASE))
    assert [(29, 29, 2)] == bench.take(500, fetch_offset=29)
    assert 30 == bench.partition.next_fetch_offset()


def test_one_error_undoes_all_of_an_acknowledgement():
    """Row 153: if a request acknowledges one record twice, the whole request is refused.

    All records stay held, in the same batches as before.
    """
    bench = Bench((5, 9), (10, 14), (15, 19))
    bench.take_each()

    with pytest.raises(RecordNotHeldError):
        bench.say((5, 9, RELEASE), (10, 14, ACCEPT), (15, 19, ACCEPT), (16, 19, ACCEPT))
    assert {5: (ACQUIRED, 1), 10: (ACQUIRED, 1), 15: (ACQUIRED, 1)} == bench.states()
    assert 0 == bench.partition.complete_count


def test_the_second_end_of_a_lock_archives_at_a_limit_of_two():
    """Row 154: with a delivery limit of two, a record whose lock expires twice is archived, and counts as done."""
    bench = Bench((0, 9), (10, 19), limits=Limits(LOCK, 2, 200))
    bench.take_each()
    bench.wait()
    assert {0: (AVAILABLE, 1), 10: (AVAILABLE, 1)} == bench.states()
    assert 0 == bench.partition.complete_count
    assert [(10, 19, 2)] == bench.take(log=[(10, 19)])
    bench.wait()

    assert {0: (AVAILABLE, 1), 10: (ARCHIVED, 2)} == bench.states()
    assert (0, 10) == (bench.partition.next_fetch_offset(), bench.partition.complete_count)


def test_records_released_at_the_limit_are_archived_and_nothing_is_kept():
    """Row 155: a record that is released at the delivery limit is archived.

    Here all other records were accepted, so the start offset moves past all records.
    """
    bench = Bench((10, 14), (15, 19), limits=Limits(LOCK, 2, 200))
    bench.take_each()
    bench.say((10, 12, ACCEPT), (13, 16, RELEASE), (17, 19, ACCEPT))
    assert [(13, 14, 2)] == bench.take(log=[(10, 14)])
    assert [(15, 16, 2)] == bench.take(log=[(15, 19)])
    bench.say((13, 16, RELEASE))

    assert {} == bench.states()
    assert (20, 20) == (bench.partition.next_fetch_offset(), bench.partition.start_offset)


def test_records_delivered_often_are_delivered_alone():
    """Row 156: records that were delivered twice are delivered together with new records.

    A batch that was delivered three times is delivered alone, and only its first half.
    """
    log = [(7, 19), (20, 27)]
    bench = loaded(5, (15, 19, AVAILABLE, 2), (20, 22, ARCHIVED, 3), (26, 30, AVAILABLE, 3), log=log)

    assert 5 == bench.partition.next_fetch_offset()
    assert [(7, 14, 1), (15, 19, 3), (23, 25, 1)] == bench.take(500, fetch_offset=5)
    assert (30, 26, 3) == bench.offsets()[1:]
    assert [(26, 27, 4)] == bench.take(500, fetch_offset=26)


def test_a_batch_is_halved_until_its_records_come_alone():
    """Row 157: with a delivery limit of seven, a batch is halved after four deliveries until each record is alone."""
    bench = loaded(5, (15, 34, AVAILABLE, 4), log=[(15, 34)], deliveries=7)
    assert [(15, 24, 5)] == bench.take(500, fetch_offset=5)
    bench.wait()
    assert [(15, 19, 6)] == bench.take(500, fetch_offset=5)
    bench.wait()
    alone = [bench.take(500, fetch_offset=5) for _ in range(5)]

    assert [[(15 + at, 15 + at, 7)] for at in range(5)] == alone
    assert [(20, 24, 6)] == bench.take(500, fetch_offset=5)
    assert [(25, 34, 5)] == bench.take(500, fetch_offset=5)


def test_the_last_attempt_is_alone_among_others():
    """Row 158: with a delivery limit of five, a record that was delivered four times is delivered alone."""
    bench = loaded(15, (15, 34, AVAILABLE, 2), log=[(15, 34)])
    bench.take(500)
    bench.say((17, 17, RELEASE), (20, 20, RELEASE))
    assert [(17, 17, 4), (20, 20, 4)] == bench.take(500)
    bench.say((15, 34, RELEASE))

    assert [(15, 16, 4)] == bench.take(500, fetch_offset=5)
    assert [(17, 17, 5)] == bench.take(500, fetch_offset=5)


def test_a_moved_log_start_archives_records_that_are_not_held():
    """Row 159: if the log start moves, the start offset follows at once; held records below it stay held."""
    log = [(first, first + 4) for first in range(2, 37, 5)]
    bench = Bench(*log)
    bench.take_each()
    bench.say((2, 6, ACCEPT), (12, 16, RELEASE), (22, 26, RELEASE), (27, 31, REJECT))
    assert 5 == bench.partition.complete_count
    bench.partition.move_log_start(20)

    assert (20, 36, 22, 5) == bench.offsets()
    expected = {
        7: (ACQUIRED, 1),
        12: (ARCHIVED, 1),
        17: (ACQUIRED, 1),
        22: (AVAILABLE, 1),
        27: (ARCHIVED, 1),
        32: (ACQUIRED, 1),
    }
    assert expected == bench.states()


def test_what_is_held_below_the_logs_start_keeps_the_start_until_it_is_settled():
    """The start offset stays at the log start while records at this offset are held.

    Accepting later records does not move the start offset. When the locks expire, held records below the log start
    are archived.
    """
    bench = Bench((0, 9), (10, 19))
    bench.take_each()
    bench.partition.move_log_start(5)
    bench.say((10, 19, ACCEPT))
    assert 5 == bench.partition.start_offset
    bench.written.clear()
    bench.wait()

    below = [StateBatch(offset, offset, ARCHIVED, 1) for offset in range(5)]
    above = [StateBatch(offset, offset, AVAILABLE, 1) for offset in range(5, 10)]
    assert below + above == bench.written
    assert (5, 5) == (bench.partition.start_offset, bench.partition.next_fetch_offset())


def test_a_write_that_fails_leaves_the_records_held():
    """Row 160: if the write fails, the records stay held and can be acknowledged again."""
    bench = Bench((5, 9))
    bench.take()
    change = bench.partition.acknowledge(ME, [AckBatch(5, 9, (ACCEPT,))], bench.now)
    assert 5 == bench.partition.complete_count
    with pytest.raises(RecordNotHeldError):
        bench.say((5, 9, ACCEPT))
    change.undo(bench.now)

    assert {5: (ACQUIRED, 1)} == bench.states()
    assert 0 == bench.partition.complete_count
    bench.say((5, 9, ACCEPT))
    assert {} == bench.states()


@pytest.mark.parametrize(("limit", "state"), [(5, AVAILABLE), (2, ARCHIVED)])
def test_a_lock_that_ends_while_a_write_fails_gives_the_records_back(limit: int, state):
    """If a lock expires while a write fails, the records are available again, or archived at the delivery limit."""
    bench = Bench((5, 9), limits=Limits(LOCK, limit, 200))
    bench.take()
    bench.say((5, 9, RELEASE))
    bench.take()
    change = bench.partition.acknowledge(ME, [AckBatch(5, 9, (ACCEPT,))], bench.now)
    bench.wait()
    change.undo(bench.now)

    assert {5: (state, 2)} == bench.states()


def test_a_lock_that_ends_while_a_change_is_written_changes_nothing_of_it():
    """Row 161: a lock may expire while an acknowledgement is being written.

    The expiry releases only records without an acknowledgement. Each other record gets the state that its
    acknowledgement gives.
    """
    bench = Bench((0, 4), (5, 19))
    bench.take_each()
    words = [AckBatch(0, 0, (RELEASE,)), AckBatch(1, 1, (ACCEPT,)), AckBatch(5, 19, (ACCEPT,))]
    change = bench.partition.acknowledge(ME, words, bench.now)
    assert (0, 16) == (bench.partition.start_offset, bench.partition.complete_count)
    bench.wait()
    change.commit()

    assert [
        (AVAILABLE, 1),
        (ACKNOWLEDGED, 1),
        (AVAILABLE, 1),
        (AVAILABLE, 1),
        (AVAILABLE, 1),
    ] == bench.states()[0]
    assert (ACKNOWLEDGED, 1) == bench.states()[5]
    assert 16 == bench.partition.complete_count


def test_a_lock_is_renewed_without_a_write():
    """Row 162: renewing single records moves the end of their locks; after that end others can get them."""
    bench = Bench((0, 1), limits=Limits(LOCK, 2, 200))
    bench.take()
    bench.now = 50
    change = bench.partition.acknowledge(ME, [AckBatch(0, 1, (RENEW, ACCEPT))], bench.now)
    assert (StateBatch(1, 1, ACKNOWLEDGED, 1),) == change.batches
    change.commit()
    bench.wait(LOCK - 1)
    assert [(ACQUIRED, 1), (ACKNOWLEDGED, 1)] == bench.states()[0]
    bench.wait(1)

    assert [(AVAILABLE, 1), (ACKNOWLEDGED, 1)] == bench.states()[0]


def test_the_limit_at_the_release_counts():
    """Row 163: if the delivery limit is lowered while records are held, the lower limit counts at their release."""
    bench = Bench((5, 14), limits=Limits(LOCK, 10, 200))
    bench.take()
    bench.say((5, 14, RELEASE))
    bench.take()
    bench.limits = bench.limits._replace(deliveries=2)
    bench.say((5, 14, RELEASE))

    assert [] == bench.take()
    assert 15 == bench.partition.next_fetch_offset()


def test_new_records_are_cut_at_batches_of_the_log_or_exactly():
    """By default a request for three records acquires the whole batch of ten records.

    An exact request acquires three records, and the other seven stay available.
    """
    assert [(0, 9, 1)] == Bench((0, 9)).take(3)
    bench = Bench((0, 9))

    assert [(0, 2, 1)] == bench.take(3, exactly=True)
    assert [(ACQUIRED, 1)] * 3 + [(AVAILABLE, 0)] * 7 == bench.states()[0]
    assert [(3, 4, 1)] == bench.take_next(2, exactly=True)


def test_a_batch_that_always_fails_is_narrowed_to_its_records():
    """A batch of eight records that always fails is divided in the same steps as by Kafka's classes."""
    bench = Bench((0, 7))
    sizes = []
    while found := bench.take_next():
        sizes.append(sum(last - first + 1 for first, last, _ in found))
        bench.wait()

    assert [8, 8, 8, 4, 1, 1, 1, 1, 4, 1, 1, 1, 1] == sizes
    assert (8, {}) == (bench.partition.start_offset, bench.states())


def test_a_poison_record_takes_no_neighbor_along():
    """If the sixth of eight records kills its reader, seven records are accepted, and the sixth is archived."""
    bench = Bench((0, 7))
    done = []
    while found := bench.take_next():
        if any(first <= 5 <= last for first, last, _ in found):
            bench.wait()
        else:
            bench.say(*((first, last, ACCEPT) for first, last, _ in found))
            done += [offset for first, last, _ in found for offset in range(first, last + 1)]

    assert [0, 1, 2, 3, 4, 6, 7] == sorted(done)
    assert [StateBatch(5, 5, ARCHIVED, 5)] == [one for one in bench.written if one.state == ARCHIVED]


def test_what_a_transaction_aborted_is_archived_and_not_given():
    """Records of an aborted transaction are archived, and only the batches around them are delivered."""
    bench = Bench((0, 4), (5, 9), (10, 14))

    assert [(0, 4, 1), (10, 14, 1)] == bench.take(aborted=[(5, 9)])
    assert [(ACQUIRED, 1)] * 5 + [(ARCHIVED, 1)] * 5 + [(ACQUIRED, 1)] * 5 == bench.states()[0]
    bench.say((0, 4, ACCEPT), (10, 14, ACCEPT))
    assert 15 == bench.partition.start_offset


def test_what_compaction_removed_meanwhile_is_archived():
    """If the log returns a later batch than requested, the records in between are archived."""
    bench = Bench((0, 4), (5, 9))
    bench.take_each()
    bench.wait()

    assert [(5, 9, 2)] == bench.take(fetch_offset=0, log=[(5, 9)])
    assert {0: (ARCHIVED, 1), 5: (ACQUIRED, 2)} == bench.states()


def test_a_member_that_goes_gives_back_what_it_holds_and_no_more():
    """Records that a leaving member releases keep their delivery count. Records of other members stay held."""
    bench = Bench((0, 4), (5, 9))
    bench.take(log=[(0, 4)])
    bench.take(log=[(5, 9)], member=OTHER)
    bench.leave()

    assert {0: (AVAILABLE, 1), 5: (ACQUIRED, 1)} == bench.states()
    assert [StateBatch(0, 4, AVAILABLE, 1)] == bench.written
    assert 0 == bench.partition.next_fetch_offset()


def test_a_gap_is_archived_and_what_is_below_the_start_is_passed_over():
    """A gap is an offset without a record, and is archived. Acknowledgements below the start are ignored."""
    bench = Bench((0, 4))
    bench.take()
    bench.say((0, 2, GAP))
    bench.say((0, 1, ACCEPT))

    assert 3 == bench.partition.start_offset
    assert [StateBatch(offset, offset, ARCHIVED, 1) for offset in range(3)] == bench.written


@pytest.mark.parametrize(
    ("ack", "error"),
    [
        (AckBatch(8, 12, (ACCEPT,)), NotAcquiredError),
        (AckBatch(12, 13, (ACCEPT,)), NotAcquiredError),
        (AckBatch(2, 3, (ACCEPT,)), RecordNotHeldError),
        (AckBatch(5, 9, (7,)), NotAcquiredError),
    ],
)
def test_what_was_never_handed_out_cannot_be_acknowledged(ack, error):
    """Acknowledgements of offsets outside the acquired ones, or of an unknown type, are refused."""
    bench = loaded(0, (5, 9, AVAILABLE, 1))
    bench.take(log=[(5, 9)])

    with pytest.raises(error):
        bench.partition.acknowledge(ME, [ack], bench.now)
    assert {5: (ACQUIRED, 2)} == bench.states()


def test_another_member_and_a_second_acknowledgement_are_refused():
    """Only the holder may acknowledge a record, and only once."""
    bench = Bench((0, 4))
    bench.take()
    with pytest.raises(RecordNotHeldError):
        bench.say((0, 4, ACCEPT), member=OTHER)
    bench.say((1, 1, ACCEPT))
    with pytest.raises(RecordNotHeldError):
        bench.say((1, 1, RELEASE))
    assert [(ACQUIRED, 1), (ACKNOWLEDGED, 1)] + [(ACQUIRED, 1)] * 3 == bench.states()[0]


def test_holders_are_listed():
    """Holders are listed by offset, each with the begin and end of its lock. Records that are done have no holder."""
    bench = Bench((0, 1), (2, 3))
    bench.now = 7
    bench.take(log=[(0, 1)])
    bench.say((0, 0, ACCEPT))

    assert [(1, 1, ME, 1, 7, 107)] == [tuple(one) for one in bench.partition.held()]
    assert (1, 1, ME, 1, 7, 107) == bench.partition.holder(1)
    assert (None, None) == (bench.partition.holder(0), bench.partition.holder(9))
