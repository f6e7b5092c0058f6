"""Tests of a log's life cycle: its states, their transitions, and what a log allows in each state and role."""

from __future__ import annotations

from itertools import product

import pytest

from tests.doubles.logs import PARTITION, LogOnDisk, records_of
from tests.doubles.records import batch
from topicfs.storage import errors
from topicfs.storage.log.life import TRANSITIONS, Event, Life, LogLife, Role
from topicfs.storage.log.log import Log
from topicfs.storage.model import Offset

S, F, G = Life.SERVING, Life.OFFLINE, Life.DELETING
C, D, X = Life.CLOSED, Life.DELETED, Life.SUPERSEDED

TABLE = {
    # In state:       SERVING OFFLINE DELETING CLOSED DELETED SUPERSEDED
    Event.FAIL:      (F, F, G, C, D, X),
    Event.DELETE:    (G, G, G, D, D, X),
    Event.CLOSE:     (C, C, D, C, D, X),
    Event.SUPERSEDE: (None, None, None, X, X, X),
}  # fmt: skip

WAYS: dict[Life, tuple[Event, ...]] = {
    S: (),
    F: (Event.FAIL,),
    G: (Event.DELETE,),
    C: (Event.CLOSE,),
    D: (Event.DELETE, Event.CLOSE),
    X: (Event.CLOSE, Event.SUPERSEDE),
}
"""For each state, the shortest series of events that leads to it from SERVING."""


def happen(log: Log, event: Event) -> None:
    """Make `event` happen to a log as the engine does."""
    if event is Event.CLOSE:
        log.close()
    elif event is Event.FAIL:
        log.parts.mark_offline("flushing failed")
    else:
        log.parts.life.note(event, "the topic was deleted" if event is Event.DELETE else None)


def take(log: Log, role: Role, *, epoch: int) -> None:
    """Give a role to a log, as the engine does."""
    if role is Role.FOLLOWER:
        log.roles.follow(log.log_end_offset)
    else:
        log.roles.lead(epoch, None if role is Role.ALONE else log.log_end_offset)


def log_in(life: Life) -> LogOnDisk:
    """Return a log with one record in state `life`."""
    on_disk = LogOnDisk()
    on_disk.log.append(batch(b"a"))
    for event in WAYS[life]:
        happen(on_disk.log, event)
    return on_disk


def test_the_table_has_every_life_and_every_event():
    """The table has an entry for each event in each state, and each state can be reached from SERVING."""
    expected = {event: dict(zip(Life, row, strict=True)) for event, row in TABLE.items()}
    assert TRANSITIONS == expected
    assert set(Event) == set(TRANSITIONS)
    reached = [S]
    for life in reached:
        reached += {row[life] for row in TRANSITIONS.values()} - {None, *reached}
    assert set(Life) == set(reached)


@pytest.mark.parametrize(("event", "life"), list(product(Event, Life)))
def test_a_real_log_follows_the_table(event, life):
    """Each event either brings a real log to the state in the table, or is refused and changes nothing."""
    log = log_in(life).log
    expected = TABLE[event][list(Life).index(life)]
    assert life is log.parts.life.now
    if expected is None:
        with pytest.raises(ValueError, match=f"supersede a log that is {life.value}"):
            happen(log, event)
    else:
        happen(log, event)
    assert (expected or life) is log.parts.life.now


REFUSED: dict[Life, tuple[type[Exception], str] | None] = {
    S: None,
    F: (errors.PartitionOfflineError, "flushing failed"),
    G: (errors.PartitionGoneError, "the topic was deleted"),
    C: (errors.PartitionOfflineError, "closed"),
    D: (errors.PartitionGoneError, "the topic was deleted"),
    X: (errors.PartitionGoneError, "closed"),
}


@pytest.mark.parametrize("life", Life)
def test_a_log_takes_changes_while_it_serves(life):
    """Only SERVING allows changes. Each other state refuses changes with its own error and reason."""
    log, refused = log_in(life).log, REFUSED[life]
    changes = (
        lambda: log.append(batch(b"b")),
        lambda: log.append(batch(b"b"), encoded_here=True),
        lambda: log.appender.append_as_follower(batch(b"b", offset=9)),
        lambda: log.delete_records(Offset(0)),
        lambda: log.roles.lead(3, Offset(0)),
        lambda: log.roles.lead(3, None),
        log.sync,
    )
    for change in changes:
        if refused is None:
            change()
        else:
            with pytest.raises(refused[0], match=f"orders-0: {refused[1]}") as error:
                change()
            assert refused[0] is error.type


@pytest.mark.parametrize("life", Life)
def test_a_log_is_read_until_another_serves_in_its_place(life):
    """A log can be read in each state except SUPERSEDED, in which its files may belong to another log."""
    log = log_in(life).log
    if life is X:
        with pytest.raises(errors.SegmentDeletedError, match="was reopened"):
            records_of(log)
    else:
        assert [(0, b"a")] == records_of(log)


@pytest.mark.parametrize(("role", "life"), list(product(Role, Life)))
def test_a_log_that_cannot_write_can_only_be_a_follower(role, life):
    """A log that cannot write its epoch cannot lead. A refused role changes nothing."""
    log = log_in(life).log
    if life is S or role is Role.FOLLOWER:
        take(log, role, epoch=3)
        assert role is log.parts.life.role
    else:
        with pytest.raises(errors.PartitionOfflineError):
            take(log, role, epoch=3)
        assert Role.ALONE is log.parts.life.role
    leads = life is S and role is not Role.FOLLOWER
    follows = life is S and role is Role.FOLLOWER
    assert (leads, follows) == (log.parts.life.takes_appends, log.parts.life.takes_copies)


@pytest.mark.parametrize(("before", "after"), list(product(Role, Role)))
def test_a_log_that_serves_goes_from_any_role_to_any(before, after):
    """A log that serves can change from any role to any other role."""
    log = LogOnDisk().log
    take(log, before, epoch=0)
    take(log, after, epoch=1)
    assert after is log.parts.life.role
    if after is Role.FOLLOWER:
        with pytest.raises(errors.NotLeaderError, match="has a follower"):
            log.append(batch(b"a"))
    else:
        assert 0 == log.append(batch(b"a")).base_offset


def test_a_leader_whose_disk_failed_meanwhile_takes_no_appends():
    """If a log fails after a new role was checked but before the log takes the role, the log refuses the role."""
    life = LogLife(PARTITION, read_only=False)
    life.check_writable()
    life.note(Event.FAIL, "flushing failed")
    with pytest.raises(errors.PartitionOfflineError, match="flushing failed"):
        life.take(Role.LEADER)
    assert (Role.ALONE, False) == (life.role, life.takes_appends)


def test_a_read_only_log_takes_nothing_in_any_role():
    """A read-only log never takes writes, in any role."""
    life = LogLife(PARTITION, read_only=True)
    with pytest.raises(errors.ReadOnlyError):
        life.take(Role.LEADER)
    life.take(Role.FOLLOWER)
    assert (False, False) == (life.takes_appends, life.takes_copies)


def test_the_first_reason_stays():
    """A log keeps the first reason for which it went offline."""
    on_disk = LogOnDisk()
    on_disk.log.parts.mark_offline("the disk failed")
    happen(on_disk.log, Event.DELETE)
    on_disk.log.close()
    assert ("the disk failed", Life.DELETED) == (on_disk.log.offline_reason, on_disk.log.parts.life.now)
