"""The open `log`, `drain` or `next-1000` of a group: the open file is a member, from open(2) to the last close.

    read(2) ─► ask: what lies before the position is done ─► commit ─► fill ─► give
                                │                              │
           give up revoked partitions whose records are done   └─► wait for records, or for a rebalance

Programs that share an inherited descriptor share one membership. Positions are committed in the background. If a
commit fails, the next read returns the error and no records, and the read after that commits again. A reader of
`next-1000` or `next-10s` commits when the program reads the end. Until then, the reader keeps each partition whose
records it has given.
"""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import trio

from topicfs.coordination import membership
from topicfs.coordination.engine import Engine
from topicfs.fusefs.allowance import INLINE_BYTES, Allowance, leave_event_loop, take_turn
from topicfs.fusefs.errors import FileError, Refusal
from topicfs.fusefs.following.follow import INLINE_PARTITIONS
from topicfs.fusefs.following.waiting_reads import Program, WaitingReads
from topicfs.fusefs.following.wakeups import Wakeups
from topicfs.fusefs.forms import Form
from topicfs.fusefs.groups.assigned_partitions import AssignedPartition
from topicfs.fusefs.groups.chunks import Chunk
from topicfs.fusefs.groups.delivery import Delivery
from topicfs.fusefs.groups.positions import wanted_partitions
from topicfs.fusefs.groups.read_limit import LAST_COMMIT_SECONDS, ReadLimit
from topicfs.fusefs.groups.words import CommitWord, parse_commit, whole_lines
from topicfs.fusefs.handle import Handle, Notify, WaitingPoll
from topicfs.fusefs.reports import Reports
from topicfs.fusefs.threads.blocking_calls import BlockingCalls
from topicfs.fusefs.views.measure import Source
from topicfs.fusefs.views.rendering import Text
from topicfs.storage.engine import Cancel
from topicfs.storage.errors import NoAnswerError, NotAssignedError, StorageError
from topicfs.storage.model import Isolation, Offset, Timestamp, TopicPartition
from topicfs.storage.remote import ThreadNeededError


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRead:
    """The topics and the form that an open file of a group reads, and the objects that reading needs."""

    path: str
    """`/@groups/billing/orders/log`: the file's path in the mount."""
    engine: Engine
    group: str
    subscription: membership.Subscription
    form: Form
    isolation: Isolation
    limit: ReadLimit
    waiting: WaitingReads
    blocking: BlockingCalls
    reports: Reports
    clock: Callable[[], Timestamp]


class _Held(NamedTuple):
    """A held partition, and the function that stops listening to it."""

    share: AssignedPartition
    cancel: Cancel


class GroupHandle(Handle):
    """An open file of a group, such as `@groups/billing/orders/log`: a member that reads its partitions."""

    follows = True

    def __init__(
        self,
        what: GroupRead,
        *,
        opener_pid: int,
        program: str,
        nonblocking: bool,
        ends: Mapping[tuple[str, int], Offset],
    ) -> None:
        """Join the group. For a draining reader, `ends` (from `ends_of`) is where the partitions ended at open(2)."""
        self._what = what
        self._program = Program(what.waiting, opener_pid, what.path)
        self._nonblocking = nonblocking
        self._metadata = f"{program} {opener_pid}"
        self._delivery = Delivery()
        self._turn = trio.Lock()
        """Held while a read is processed, but not while a read waits for records."""
        self._filling = threading.Lock()
        self._news = Wakeups(what.waiting.waker)
        self._token = trio.lowlevel.current_trio_token()
        self._partitions: dict[TopicPartition, _Held] = {}
        self._given_up: dict[tuple[str, int], tuple[membership.CommittedPosition | None, Offset | None]] = {}
        """Partitions given up, by topic ID and number: the position at the assignment, and the offset committed since
        then.
        """
        self._changes = 0
        """Number of assignment changes that were reported and not processed yet."""
        self._ends = ends
        self._over = self._ended = False
        """`_over`: the time limit has passed. `_ended`: the stream has reached its end and gives no more records."""
        self._alarm: trio.CancelScope | None = None
        """A scope that is canceled when the time limit has passed, or at the close."""
        self._request = trio.CancelScope()
        """Cancels an unanswered request to a broker when the time limit has passed."""
        self._taken: NotAssignedError | None = None
        """Why the delivered records can no longer be committed."""
        self._failure: Exception | None = None
        """The error of a commit, for the next read to raise."""
        self._commit_first = False
        """True after a failed commit: records are delivered only after a commit succeeds."""
        self._commits: dict[Future[None], tuple[TopicPartition, ...]] = {}
        """Running commits, with their partitions."""
        self._poll = WaitingPoll(self._news.wait)
        self._cancel_groups = what.engine.groups.listen(self._news.signal) if what.limit.drains else _nothing
        self._membership: membership.Membership = what.engine.groups.join(
            what.group,
            what.subscription,
            client_id=self._metadata.replace(" ", "-"),
            reader=self._metadata,
            listener=self._changed,
        )
        self._released = False
        self._begun_line = b""
        self._adopt()

    # Reading

    async def read(self, position: int, size: int) -> Text:
        """Return the next records, at most `size` bytes; wait if there are none. Returns b"" at the end.

        Everything before `position` is done. Raises FileError: EAGAIN (O_NONBLOCK) without a record, EINTR, EMFILE;
        ESPIPE for a position before a record that is done. Raises the engine's errors, and the errors of commits.
        """
        waiting, news, asked = self._what.waiting, self._news, False
        if waiting.waker.is_busy and not self._delivery.has_text:
            await waiting.waker.turn()
        while True:
            heard = news.news_count
            async with self._turn:
                if not asked:
                    self._delivery.ask(position)
                    asked = True
                self._adopt()
                self._raise_failure()
                if self._commit_first:
                    await self._commit_now()
                with trio.CancelScope() as self._request:
                    await self._patiently(self._fill)
                if self._changes:
                    self._adopt()
                if self._delivery.has_text:
                    data = self._delivery.read(size)
                    self._commit()
                    return data
                self._ended = await self._patiently(self._look_for_end)
                if self._ended:
                    await self._end()
                    return b""
                self._commit()
                self._check_topics()
            if self._nonblocking:
                raise FileError(Refusal.NOTHING_NEW)
            if heard == news.news_count:  # Otherwise something changed while a thread looked.
                await self._program.wait(news.wait)

    async def _patiently(self, call: Callable[[], bool]) -> bool:
        """Return the result of `call`. If no broker answers, return False; the reader then looks again at once."""
        try:
            return await self._what.blocking.run_inline_or_in_thread(call, self._program)
        except NoAnswerError:
            self._news.deliver()
            return False

    def _fill(self) -> bool:
        """Load the next chunk, taking partitions in turn; return False if there is none."""
        take_turn(self._filling)  # poll(2) fills the next chunk in another thread.
        try:
            delivery, missing = self._delivery, None
            for partition in self._partitions if self._over else ():
                delivery.finish(partition)
            if delivery.has_text or self._room == 0:
                return delivery.has_text
            for partition in list(self._partitions):
                try:
                    chunk = self._next_of(partition)
                except ThreadNeededError as error:
                    if not self._what.engine.remote:
                        raise
                    missing = missing or error  # Try the other partitions, which may need no broker.
                    continue
                if chunk is not None and not self._ended:
                    held = self._partitions.pop(partition)
                    self._partitions[partition] = held  # Move the partition to the end of the order.
                    delivery.offer(held.share, chunk)
                    return True
        finally:
            self._filling.release()
        if missing is not None:
            raise missing
        return False

    def _next_of(self, partition: TopicPartition) -> Chunk | None:
        what, held = self._what, self._partitions[partition]
        share = held.share
        topic = what.engine.topics().get(partition.topic)
        present = None if topic is None else topic.partitions().get(partition.partition)
        if topic is None or present is None or topic.topic_id != share.topic_id:
            return None  # The partition was deleted and will soon be revoked.
        if present is not share.source.partition:
            held.cancel()
            self._partitions[partition] = _Held(share, present.listen(self._news.signal))
            share.serve_from(present)
        warn = partial(what.reports.warning, what.path.removeprefix("/"))
        reset = what.engine.groups.config(what.group).auto_offset_reset
        chunk = share.next(reset, what.clock(), warn, self._room)
        if chunk is None and self._delivery.unanswered_partition() != partition:
            share.pass_over()
        return chunk

    def _check_topics(self) -> None:
        """Raise FileError (ESTALE) if no topic is left to read."""
        wanted, engine = self._what.subscription, self._what.engine
        if not wanted.patterns and wanted.topics.isdisjoint(engine.topics()):
            raise FileError(Refusal.GONE, f"{', '.join(sorted(wanted.topics))}: deleted")

    @property
    def _room(self) -> int | None:
        """Number of records that may still be delivered; None: unlimited."""
        records = self._what.limit.records
        if self._over or self._ended:
            return 0
        return None if records is None else records - self._delivery.records

    def _look_for_end(self) -> bool:
        """Return whether the limit is reached, or all held partitions are finished and no more will be assigned."""
        if self._room == 0 or not self._what.limit.drains:
            return self._room == 0
        held, shares = self._membership.held(), [one.share for one in list(self._partitions.values())]
        if held.partitions != self._partitions.keys() or not all(share.ended for share in shares):
            return False
        if any(map(self._keeps, shares)):
            return True  # Do not wait for more, because other members may wait for this reader's end.
        if held.generation < 0 or held.wanted_back:
            return False
        what = self._what
        group = what.engine.groups.describe(what.group)
        assigned = {one.member_id: frozenset(one.partitions) for one in group.members}
        if group.state is not membership.GroupState.STABLE or group.generation != held.generation:
            return False
        # A partition is assigned but not held while a transaction may move its position.
        is_complete = assigned.get(self._membership.member_id, frozenset()) == held.partitions
        wanted = wanted_partitions(what.engine, what.subscription).keys()
        return is_complete and wanted <= frozenset().union(*assigned.values())

    async def _end_at(self, alarm: trio.CancelScope) -> None:
        with alarm:
            await trio.sleep_forever()
        self._over = True
        self._request.cancel()
        self._news.deliver()

    # Membership

    def _changed(self) -> None:
        """Record that the assignment changed. Thread-safe."""
        self._changes += 1
        self._soon(self._adopt_changes)

    def _soon(self, call: Callable[..., None], *arguments: object) -> None:
        """Call `call` in the event loop's thread. Thread-safe."""
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(call, *arguments, idempotent=True)

    def _adopt_changes(self) -> None:
        if not self._filling.locked():  # Filling checks for changes when it is done.
            self._adopt()
        self._news.deliver()

    def _adopt(self) -> None:
        """Follow the assignment: add new partitions, drop lost ones, give up revoked ones whose records are done."""
        self._changes = 0
        if self._released:
            return
        held, seconds = self._membership.held(), self._what.limit.seconds
        if seconds is not None and self._alarm is None and held.generation >= 0:
            self._alarm = trio.CancelScope(deadline=trio.current_time() + seconds)
            trio.lowlevel.spawn_system_task(self._end_at, self._alarm)
        for partition in [at for at, one in self._partitions.items() if not held.has(at, one.share.topic_id)]:
            if self._keeps(self._partitions[partition].share):
                self._taken = NotAssignedError(
                    f"{partition} was revoked: the records read from it are not committed"
                )
            self._delivery.forget(partition)
            self._let_go(partition)
        for partition in held.partitions - held.wanted_back:
            if partition not in self._partitions:
                self._take(partition, held)
        for partition in held.wanted_back:
            if partition not in self._partitions:
                self._membership.give_up([partition])
            elif not self._keeps(self._partitions[partition].share) and self._delivery.finish(partition):
                self._give_up(partition, held)
        self._failure = self._failure or held.lost or self._taken

    def _keeps(self, share: AssignedPartition) -> bool:
        """Return whether the partition must be kept, because its delivered records are committed only at the end."""
        committed = self._ended and share.said == share.done
        return self._what.limit.commits_at_end and share.given and not committed

    def _take(self, partition: TopicPartition, held: membership.MemberPartitions) -> None:
        what = self._what
        topic = what.engine.topics().get(partition.topic)
        found = None if topic is None else topic.partitions().get(partition.partition)
        if topic is None or found is None or not held.has(partition, topic.topic_id):
            return  # The partition was deleted since.
        key = (topic.topic_id, partition.partition)
        source = Source(found, what.form, what.isolation, found.cuts)
        end_offset = self._ends.get(key, source.visible_end()) if what.limit.drains else None
        committed = held.positions.get(partition)
        before, said = self._given_up.pop(key, (None, None))
        if committed == before and said is not None:
            committed = membership.CommittedPosition(
                said
            )  # Continue from the offset that this reader committed, because no other member has moved the position.
        share = AssignedPartition(topic.topic_id, source, committed, end_offset=end_offset)
        self._partitions[partition] = _Held(share, found.listen(self._news.signal))

    def _give_up(self, partition: TopicPartition, held: membership.MemberPartitions) -> None:
        self._commit()
        share = self._partitions[partition].share
        self._given_up[share.topic_id, partition.partition] = held.positions.get(partition), share.said
        self._let_go(partition)
        self._membership.give_up([partition])

    def _let_go(self, partition: TopicPartition) -> None:
        self._partitions.pop(partition).cancel()

    # Positions

    def _commit(self, *, at_once: bool = False) -> None:
        """Start a commit of all records that are done, unless commits wait for the end."""
        what = self._what
        due = self._ended or not what.limit.commits_at_end
        if due and what.engine.groups.config(what.group).commit == "ask":
            self._commit_done(at_once=at_once)

    def _commit_done(self, *, at_once: bool = False) -> None:
        positions = {}
        for partition, held in self._partitions.items():
            share = held.share
            if share.done is not None and share.done != share.said:
                positions[partition] = membership.Position(
                    share.done, self._metadata, topic_id=share.topic_id
                )
                share.said = share.done
        if positions:
            future = self._membership.commit(positions, at_once=at_once)
            self._commits[future] = tuple(positions)
            future.add_done_callback(partial(self._soon, self._note_commit))

    def _note_commit(self, future: Future[None]) -> None:
        """Handle the end of a commit: if it failed, the next read raises the error and commits again."""
        partitions = self._commits.pop(future, None)
        error = None if partitions is None or future.cancelled() else future.exception()
        if partitions is None or error is None:
            return
        for partition in partitions:
            held = self._partitions.get(partition)
            if held is not None:
                held.share.said = None
        again = isinstance(error, NotAssignedError) and not self._what.limit.commits_at_end
        if (
            isinstance(error, Exception) and not again
        ):  # After a NotAssignedError, the partition's next holder delivers the records again.
            self._failure, self._commit_first = error, True
            self._news.deliver()

    async def _commit_now(self) -> None:
        """Commit all records that are done, and wait until the commit is in the log. Raises the commit's error."""
        self._commit_first = False
        self._commit(at_once=True)
        await self._until_committed()

    async def _end(self) -> None:
        """Commit all records that are done; then leave the group if the reader commits only at its end."""
        try:
            with trio.fail_after(LAST_COMMIT_SECONDS if self._over else float("inf")):
                await self._commit_now()
        except trio.TooSlowError:
            raise FileError(
                Refusal.FAILED, "no answer to the commit: records may be delivered again"
            ) from None
        kept = any(self._keeps(one.share) for one in self._partitions.values())
        if self._what.limit.commits_at_end and not kept:
            await self.release()

    async def _until_committed(self) -> None:
        for future in list(self._commits):
            while not future.done():
                await self._program.wait(partial(self._when_done, future))
            self._note_commit(future)
        self._raise_failure()

    def _when_done(self, future: Future[None], waiter: Callable[[], None]) -> Cancel:
        future.add_done_callback(lambda _: self._soon(waiter))
        return _nothing

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure.with_traceback(None)

    # Commands

    async def write(self, position: int, data: bytes) -> int:
        """Execute lines: `commit`, `commit OFFSET` of the partition read last, `commit TOPIC-PARTITION OFFSET`.

        The records before the program's file position count as read. Returns when the commit is done. Raises
        InvalidConfigError, NotAssignedError, InvalidPositionError, and the errors of a commit.
        """
        async with self._turn:
            self._delivery.writes(position)
            begun, self._begun_line = self._begun_line, b""
            lines, rest = whole_lines(begun, data)
            for line in lines:
                word = parse_commit(line)
                self._adopt()
                if word.offset is None:
                    self._delivery.answer()
                else:
                    self._set_done(word)
                self._commit_done(at_once=True)
                await self._until_committed()
            self._begun_line = rest
            self._delivery.wrote(len(data))
            self._adopt()
        return len(data)

    def _set_done(self, word: CommitWord) -> None:
        partition = self._delivery.read_last if word.partition is None else word.partition
        held = None if partition is None else self._partitions.get(partition)
        if held is None or self._delivery.has_read_other(held.share):
            raise NotAssignedError(
                f"{'nothing was read yet' if partition is None else partition}: not held by this reader"
            )
        held.share.done, held.share.said = word.offset, None  # Commit it even if it was committed before.

    # Polling

    def poll(self, notify: Notify | None) -> int:
        """Return the ready events; `notify` is called when they may have changed."""
        self._poll.begin(notify)
        if self._changes and not self._filling.locked():
            self._adopt()
        return select.POLLIN | select.POLLRDNORM if self._is_readable() else 0

    def _is_readable(self) -> bool:
        if self._failure is not None or self._ended:
            return True
        try:
            with Allowance(INLINE_BYTES, inline=True):
                if self._fill() or self._look_for_end():
                    return True
                self._check_topics()
                return False
        except (FileError, StorageError, ThreadNeededError):
            return True  # The next read raises the error, or runs in a thread; it does not wait for records.

    async def release(self) -> None:
        """Leave the group at the last close. Other members get the records that are not done."""
        if self._released:
            return
        self._released = True
        self._poll.forget()
        self._cancel_groups()
        if self._alarm is not None:
            self._alarm.cancel()
        for partition in list(self._partitions):
            self._let_go(partition)
        self._membership.leave()


def _nothing() -> None:
    pass


def ends_of(what: GroupRead) -> dict[tuple[str, int], Offset]:
    """Return subscribed partitions' ends, by topic ID and number. Raises ThreadNeededError for many partitions."""
    wanted = wanted_partitions(what.engine, what.subscription)
    if len(wanted) > INLINE_PARTITIONS:
        leave_event_loop()
    found = {one: what.engine.partition(*one) for one in wanted}
    for partition in found.values():
        partition.find_bounds()
    return {(wanted[one], one.partition): end.visible_end(what.isolation) for one, end in found.items()}
