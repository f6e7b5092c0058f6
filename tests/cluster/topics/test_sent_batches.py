"""Tests of appends that begin before earlier appends end: each is stored once, in order, and has its own result."""

from __future__ import annotations

import itertools
import threading
from collections import deque

import pytest

from tests.doubles.producing import (
    batch,
    check_appends_while_leaders_move,
    connected,
    impatient,
    opened,
    values,
)
from tests.doubles.waiting import TIMEOUT_SECONDS, wait_until
from topicfs.cluster.errors import UnreachableError
from topicfs.cluster.protocol.connection import Connection
from topicfs.cluster.topics.producer import MAX_SENT_BATCHES
from topicfs.protocol.messages import PRODUCE
from topicfs.storage.errors import (
    PartitionGoneError,
    PartitionOfflineError,
    PartlyAppendedError,
    RecordTooLargeError,
)
from topicfs.storage.model import Isolation

pytestmark = pytest.mark.java


def begun(partition, data, *others, durable=True):
    """Begin an append of `data` after those in `others`."""
    return partition.begin_append(
        data, durable=durable, encoded_here=False, unless=lambda: any(one.failed for one in others)
    )


class Faulty(Connection):
    """A connection that breaks at certain pipelined requests, at their answers, or at unpipelined appends."""

    breaks_sending = staticmethod(lambda number: False)
    breaks_answering = staticmethod(lambda number: False)
    breaks_calling = staticmethod(lambda number: False)
    broken = 0
    numbers = itertools.count(1)

    def begin(self, api, request, *, seconds):
        if self.breaks_sending(next(self.numbers)):
            self._break()
        return super().begin(api, request, seconds=seconds)

    def end(self, sent):
        if self.breaks_answering(next(self.numbers)):
            self._break()
        return super().end(sent)

    def call_all(self, *asked, seconds):
        if asked[0][0] is PRODUCE and self.breaks_calling(next(self.numbers)):
            self._break()
        return super().call_all(*asked, seconds=seconds)

    def _break(self):
        type(self).broken += 1
        self.close()
        raise UnreachableError(f"{self.server}: the connection broke")


def faulty(**breaks):
    made = {name: staticmethod(rule) for name, rule in breaks.items()}
    return type("FaultyNow", (Faulty,), {**made, "numbers": itertools.count(1)})


@pytest.mark.parametrize("durable", [False, True])
def test_appends_are_in_the_log_in_the_order_of_their_beginnings(engine, client, durable):
    """Begun appends are stored in the order in which they began, in whatever order their results are awaited."""
    partition = opened(engine, client, f"ahead-{durable}")
    appends = [begun(partition, batch(b"%d" % number), durable=durable) for number in range(12)]
    offsets = {number: appends[number].end().base_offset for number in (11, 0, *range(1, 11))}
    assert offsets == {number: number for number in range(12)}
    assert 12 == partition.visible_end(Isolation.READ_COMMITTED)
    assert [b"%d" % number for number in range(12)] == values(client, f"ahead-{durable}")


def test_an_append_that_waits_comes_after_begun_appends(engine, client):
    """An append that waits for its answer also receives the answers to earlier begun appends, for their callers."""
    partition = opened(engine, client, "ahead-behind")
    first, second = begun(partition, batch(b"a")), begun(partition, batch(b"b"))
    assert 2 == partition.append(batch(b"c"), durable=True).base_offset
    assert (0, 1) == (first.end().base_offset, second.end().base_offset)
    assert [b"a", b"b", b"c"] == values(client, "ahead-behind")


def test_at_most_five_batches_are_unanswered(engine, client):
    """A sixth unanswered append waits for the first one, as a broker remembers only a producer's last five batches."""
    partition = opened(engine, client, "ahead-most")
    appends = [begun(partition, batch(b"%d" % number)) for number in range(9)]
    assert MAX_SENT_BATCHES == len(partition._producer._sent)
    assert list(range(9)) == [one.end().base_offset for one in appends]
    assert not partition._producer._sent


@pytest.mark.parametrize("where", ["breaks_sending", "breaks_answering"])
def test_a_broken_connection_doubles_and_loses_nothing(address, client, where):
    """After a connection breaks, unanswered batches are sent again in order, and each is stored once."""
    connection = faulty(**{where: lambda number: number % 7 == 3})
    name = where.replace("_", "-")
    with connected(address, connection) as engine:
        partition = opened(engine, client, name)
        appends = []
        for number in range(60):
            appends.append(begun(partition, batch(b"%d" % number), *appends))
            if len(appends) > number % 4:
                appends.pop(0).end()
        for one in appends:
            one.end()
    assert connection.broken >= 5
    assert [b"%d" % number for number in range(60)] == values(client, name)


def test_appends_begun_after_a_refused_one_are_dropped(engine, client):
    """Appends that begin after a refused append are dropped, even if they were sent; the next append succeeds."""
    partition = opened(engine, client, "ahead-dropped", max_message_bytes="1000")
    appends = [begun(partition, batch(b"a"))]
    for value in (b"x" * 2000, b"b", b"c"):
        appends.append(begun(partition, batch(value), *appends))
    assert 0 == appends[0].end().base_offset
    assert not appends[1].failed
    with pytest.raises(RecordTooLargeError, match="raise max.message.bytes"):
        appends[1].end()
    for one in appends[2:]:
        assert one.failed
        with pytest.raises(
            PartitionOfflineError, match=r"an append before this one failed: .*max.message.bytes"
        ):
            one.end()
    late = begun(partition, batch(b"d"), *appends)
    with pytest.raises(PartitionOfflineError, match="an append before this one failed"):
        late.end()
    assert 1 == partition.append(batch(b"e")).base_offset
    assert 2 == begun(partition, batch(b"f")).end().base_offset
    assert [b"a", b"e", b"f"] == values(client, "ahead-dropped")


def test_nothing_is_appended_after_a_producers_first_batch_that_is_refused(engine, client):
    """If a new producer's first batch is refused, all later batches that were begun are dropped.

    A leader would accept them, because it accepts any first sequence number of an unknown producer.
    """
    partition = opened(engine, client, "ahead-first-refused", max_message_bytes="1000")
    appends = []
    for value in (b"x" * 2000, b"b", b"c"):
        appends.append(begun(partition, batch(value), *appends))
    with pytest.raises(RecordTooLargeError):
        appends[0].end()
    assert all(one.failed for one in appends)
    assert [] == values(client, "ahead-first-refused")


def test_of_several_batches_the_first_may_be_taken_alone(engine, client):
    """The error for a refused batch says how many batches of the begun append were stored before the refused one."""
    partition = opened(engine, client, "ahead-partly", max_message_bytes="1000")
    append = begun(partition, batch(b"a") + batch(b"x" * 2000) + batch(b"b"))
    with pytest.raises(PartlyAppendedError, match="the first 1 of 3 batches") as refused:
        append.end()
    assert (1, 3) == (refused.value.appended, refused.value.batches)
    assert [b"a"] == values(client, "ahead-partly")


def test_after_an_unknown_result_no_append_is_stored_twice(address, client):
    """After an append with an unknown result, later results are unknown, too, and no append is stored twice."""
    lost = threading.Event()
    connection = faulty(breaks_answering=lambda _: lost.is_set(), breaks_calling=lambda _: lost.is_set())
    with connected(address, connection) as engine:
        partition = opened(engine, client, "ahead-unknown")
        begun(partition, batch(b"before")).end()
        appends = [begun(partition, batch(b"%d" % number)) for number in range(3)]
        lost.set()
        for one in appends:
            with impatient(engine, 0.3), pytest.raises(PartitionOfflineError, match="may be in the log"):
                one.end()
        lost.clear()
        partition.append(batch(b"after"))
        begun(partition, batch(b"last")).end()
    before, *doubtful, after, last = values(client, "ahead-unknown")
    assert (b"before", b"after", b"last") == (before, after, last)
    assert [b"0", b"1", b"2"][: len(doubtful)] == doubtful


def test_a_batch_that_was_never_sent_is_reported_as_not_stored(address, client):
    """If a batch could not be sent before its session ended, the error says that the append was not stored."""
    over = threading.Event()

    class Session(Connection):
        @property
        def usable(self):
            if over.is_set():  # This closes connections that other threads have opened, too.
                self.close()
            return super().usable

    def connect(*server, **options):
        if over.is_set():
            raise UnreachableError("no way there")
        return Session(*server, **options)

    with connected(address, connect) as engine:
        partition = opened(engine, client, "ahead-unsent")
        begun(partition, batch(b"before")).end()
        over.set()
        with (
            impatient(engine, 0.3),
            pytest.raises(PartitionOfflineError, match="no way there") as refused,
        ):
            begun(partition, batch(b"never")).end()
    assert "may be in the log" not in str(refused.value)
    assert [b"before"] == values(client, "ahead-unsent")


def test_a_deleted_topic_is_reported(engine, client):
    """Appends to a deleted topic fail, and a new topic of its name gets nothing."""
    partition = opened(engine, client, "ahead-renewed")
    begun(partition, batch(b"a")).end()
    client.delete_topics(["ahead-renewed"])
    client.create_topic("ahead-renewed")

    def append_two():
        first, second = (begun(partition, batch(b"b")) for _ in range(2))
        with pytest.raises(PartitionGoneError):
            first.end()
        second.end()

    with pytest.raises(PartitionGoneError):
        append_two()  # The engine may have noticed the deletion, and then begins nothing.
    assert [] == values(client, "ahead-renewed")


def test_the_end_of_an_engine_ends_what_is_begun(address, broker, client):
    """Closing the engine ends begun appends that no broker answers."""
    with connected(address) as engine:
        partition = opened(engine, client, "ahead-ending")
        begun(partition, batch(b"known")).end()
        with broker.paused():
            append = begun(partition, batch(b"a"))
            ends = []

            def end():
                try:
                    append.end()
                except PartitionOfflineError as error:
                    ends.append(error)

            thread = threading.Thread(target=end)
            thread.start()
            wait_until(partition._producer._turn.locked, "an append waits for the broker")
            engine.close()
            thread.join(TIMEOUT_SECONDS)
    assert 1 == len(ends)


@pytest.mark.parametrize("how", ["stopped", "killed", "standing still"])
def test_nothing_is_lost_or_doubled_when_leaders_move(three_brokers, how):
    """Two threads append with several batches in flight; each thread's records are stored once and in order."""
    topic = f"ahead-{how.split()[0]}"
    check_appends_while_leaders_move(three_brokers, how, topic, _append_ahead, threads=2)


def _append_ahead(partition, mine, number, stop):
    """Append until `stop` is set, with at most three in flight; add stored values to `mine`."""
    under_way = deque()

    def end_oldest():
        value, one = under_way.popleft()
        one.end()
        mine.append(value)

    for count in itertools.count():
        if stop.wait(0.01):
            break
        value = b"%d %d" % (number, count)
        under_way.append((value, begun(partition, batch(value))))
        if len(under_way) > 2:
            end_oldest()
    while under_way:
        end_oldest()
