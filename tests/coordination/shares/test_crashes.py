"""Tests that a process that is killed at any step of a queue's work loses no record and no acknowledgement."""

from __future__ import annotations

from functools import partial
from itertools import count

import pytest

from tests.doubles.engines import append_lines, engine_on
from tests.doubles.manual_clock import ManualClock
from tests.doubles.mortal_disk import End, MortalDisk, dies
from topicfs.coordination.share_groups import Acknowledgement
from topicfs.storage.model import Offset

ACCEPT, RELEASE, REJECT = Acknowledgement.ACCEPT, Acknowledgement.RELEASE, Acknowledgement.REJECT
LINES = 4


class Life:
    """The records that one process has accepted and rejected."""

    def __init__(self) -> None:
        self.accepted: set[Offset] = set()
        self.rejected: set[Offset] = set()

    def run(self, disk: MortalDisk) -> None:
        """Take all records; accept one, reject one, release one and hold one. Then end, or be killed at some step."""
        engine = engine_on(disk, clock=ManualClock())
        session = engine.share_groups.group("g").open(["orders"], holder="mortal")
        for word, answered in ((ACCEPT, self.accepted), (REJECT, self.rejected), (RELEASE, None)):
            leased = session.take()
            if leased is None:
                break
            session.acknowledge({leased.record_name: word})
            if answered is not None:
                answered.add(leased.record_name.offset)
        session.take()
        engine.close()


def prepared() -> MortalDisk:
    disk = MortalDisk()
    engine = engine_on(disk, clock=ManualClock())
    for internal in ("__consumer_offsets", "__share_group_state"):
        engine.create_topic(internal, partitions=1)
    append_lines(engine.create_topic("orders", partitions=1).partitions()[0], "job\n" * LINES)
    engine.close()
    return disk


@pytest.mark.slow
def test_a_kill_at_each_step_loses_nothing():
    """After a kill at any step every record is accepted, rejected or delivered again.

    No acknowledged record is delivered twice.
    """
    for steps in count(1):
        disk, life = prepared(), Life()
        killed = dies(disk, partial(life.run, disk), steps)
        End.KILL.of(disk)
        engine = engine_on(disk, clock=ManualClock())
        group = engine.share_groups.group("g")
        session = group.open(["orders"], holder="successor")
        given = []
        while (leased := session.take()) is not None:
            given.append(leased.record_name.offset)
            session.acknowledge({leased.record_name: ACCEPT})
        rejected = {one.record_name.offset for one in group.rejected("orders")}

        assert not (set(given) & life.accepted), steps
        assert not (set(given) & rejected), steps
        assert life.rejected <= rejected, steps
        # A write may have succeeded without returning a result. This concerns at most one record.
        missing = set(range(LINES)) - set(given) - life.accepted - rejected
        assert len(missing) <= 1, steps
        assert len(given) == len(set(given)), steps
        assert 0 == group.positions("orders")[0].lag, steps
        engine.close()
        if not killed:
            return


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("end", [End.POWER_LOSS, End.POWER_LOSS_KEEPING_NOTHING])
def test_a_machine_that_loses_power_delivers_again_and_loses_no_record(end: End, seed: int):
    """If a power loss removes acknowledgements that were not flushed, their records are delivered again.

    New records are delivered as well, even if the log ends below the group's start offset.
    """
    disk = prepared()
    engine = engine_on(disk, clock=ManualClock())
    session = engine.share_groups.group("g").open(["orders"], holder="")
    append_lines(engine.partition("orders", 0), "late\n" * LINES)
    for _ in range(LINES + 2):
        leased = session.take()
        assert leased is not None
        session.acknowledge({leased.record_name: ACCEPT})
    disk._random.seed(seed)
    end.of(disk)
    engine = engine_on(disk, clock=ManualClock())
    partition = engine.partition("orders", 0)
    session = engine.share_groups.group("g").open(["orders"], holder="")
    kept = partition.offsets().log_end_offset
    append_lines(partition, "new\n" * 3)
    given = set()
    while (leased := session.take()) is not None:
        given.add(leased.record_name.offset)
        session.acknowledge({leased.record_name: ACCEPT})

    assert {Offset(kept + at) for at in range(3)} <= given


def test_acknowledgements_beyond_a_lost_log_end_are_forgotten():
    """Acknowledgements at offsets that the log has lost do not count.

    A later owner delivers new records at these offsets.
    """
    disk = prepared()
    clock = ManualClock()
    engine = engine_on(disk, clock=clock)
    append_lines(engine.partition("orders", 0), "late\n" * LINES)
    session = engine.share_groups.group("g").open(["orders"], holder="")
    taken = [session.take() for _ in range(2 * LINES)]
    for leased in taken[1:]:
        assert leased is not None
        session.acknowledge({leased.record_name: ACCEPT})
    engine.close()
    engine = engine_on(disk, clock=clock)
    engine.partition("orders", 0).replacer.truncate_to(Offset(LINES))
    assert engine.share_groups.group("g").open(["orders"], holder="").take() is not None
    engine.close()
    for _ in range(2):
        engine = engine_on(disk, clock=clock)
        append_lines(engine.partition("orders", 0), "new\n")
        session = engine.share_groups.group("g").open(["orders"], holder="")
        given = [leased.record_name.offset for leased in (session.take() for _ in range(3)) if leased]
        engine.close()
    assert [Offset(0), Offset(LINES), Offset(LINES + 1)] == given


@pytest.mark.slow
def test_a_kill_at_each_step_of_a_deletion_leaves_nothing_to_the_next_queue():
    """After a kill at any step, a new queue of that name has no settings or rejected records of the deleted queue."""
    for steps in count(1):
        disk = prepared()
        engine = engine_on(disk, clock=ManualClock())
        engine.share_groups.create("g").alter({"share.delivery.count.limit": "3"})
        Life().run(disk)
        engine = engine_on(disk, clock=ManualClock())
        killed = dies(disk, partial(engine.share_groups.delete, "g"), steps)
        End.KILL.of(disk)
        groups = engine_on(disk, clock=ManualClock()).share_groups
        if not groups.exists("g"):
            group = groups.create("g")
            group.open(["orders"], holder="successor").close()
            assert (5, []) == (group.settings.share_delivery_count_limit, group.rejected("orders")), steps
        if not killed:
            assert steps > 1
            return
