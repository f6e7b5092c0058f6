"""A test of a thousand jobs and eight workers that are killed at random: each job is accepted once."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from random import Random

from tests.doubles.engines import append_lines
from tests.doubles.manual_clock import ManualClock
from topicfs.coordination.share_groups import Acknowledgement, Leased
from topicfs.coordination.shares.group import QueueGroup
from topicfs.replication import open_engine
from topicfs.storage.manager import Machine

JOBS, WORKERS, PARTITIONS = 1000, 8, 3
POISON = "job 421"


class Worker(threading.Thread):
    """A worker that takes jobs until no job is left.

    The worker fails at random, and at each poison record. A failure closes the worker's session.
    """

    def __init__(self, group: QueueGroup, chance: Random, done: Counter[str], lock: threading.Lock) -> None:
        super().__init__(daemon=True)
        self._group = group
        self._random = chance
        self._done = done
        self._lock = lock
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while self._live():
                pass
        except BaseException as error:  # noqa: BLE001 (the test tells it)
            self.failure = error

    def _live(self) -> bool:
        """Take jobs until a failure; return whether there may be more jobs."""
        session = self._group.open(["orders"], holder=self.name)
        wake = threading.Event()
        session.listen(wake.set)
        try:
            while True:
                wake.clear()
                taken = list(session.take_some(self._random.choice([1, 1, 5])))
                if not taken:
                    if all(one.lag == 0 for one in self._group.positions("orders")):
                        return False
                    wake.wait(0.05)
                for leased in taken:
                    if self._dies_of(leased):
                        return True
                    session.acknowledge({leased.record_name: Acknowledgement.ACCEPT})
                    with self._lock:
                        self._done[(leased.record.value or b"").decode()] += 1
        finally:
            session.close()

    def _dies_of(self, leased: Leased) -> bool:
        poisoned = leased.record.value == POISON.encode()
        return poisoned or (leased.delivery_count == 1 and self._random.random() < 0.02)


def test_each_job_is_done_once_whoever_dies(tmp_path: Path, chance: Random):
    """The poison record is rejected after five deliveries, and its neighbors are accepted."""
    # Leases end by this clock, so a worker that a busy machine delays keeps its jobs.
    engine = open_engine(tmp_path / "data", machine=Machine(clock=ManualClock()))
    topic = engine.create_topic("orders", partitions=PARTITIONS)
    for number, partition in topic.partitions().items():
        jobs = range(number, JOBS, PARTITIONS)
        append_lines(partition, "".join(f"job {at}\n" for at in jobs[:200]))
        append_lines(partition, "".join(f"job {at}\n" for at in jobs[200:]))
    group = engine.share_groups.group("billing")
    done: Counter[str] = Counter()
    lock = threading.Lock()
    workers = [Worker(group, Random(chance.random()), done, lock) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [None] * WORKERS == [worker.failure for worker in workers]

    assert {f"job {at}": 1 for at in range(JOBS) if f"job {at}" != POISON} == dict(done)
    assert [(str(group.rejected("orders")[0].record_name), 5)] == [
        (str(one.record_name), one.delivery_count) for one in group.rejected("orders")
    ]
    engine.close()
    engine = open_engine(tmp_path / "data")
    group = engine.share_groups.group("billing")
    assert group.open(["orders"], holder="").take() is None
    assert 1 == len(group.rejected("orders"))
    engine.close()
