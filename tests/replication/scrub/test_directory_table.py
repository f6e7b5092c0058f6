"""The damage table of the files outside of partitions: each kind of damage to each file, closed or in use."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.doubles.replicated import Replicated
from tests.replication.scrub.test_damage_table import DAMAGES, LINES, Damaged, logs
from topicfs.storage.disk import names
from topicfs.storage.errors import ForkedReplicasError, MissingReplicasError
from topicfs.storage.idempotence.registry import InputProgress
from topicfs.storage.model import ProducerId
from topicfs.storage.staging.record import CommittedQuery

OTHERS = {
    names.META_PROPERTIES: names.TOPIC_SETTINGS,
    names.REPLICAS: names.TOPIC_SETTINGS,
    names.TOPIC_SETTINGS: names.COMMITTED_WRITES,
    names.COMMITTED_WRITES: names.PRODUCERS,
    names.PRODUCERS: names.COMMITTED_WRITES,
    names.RECOVERY_POINTS: names.HIGH_WATERMARKS,
    names.HIGH_WATERMARKS: names.RECOVERY_POINTS,
    names.CLEAN_SHUTDOWN: names.RECOVERY_POINTS,
    names.SCRUB: names.RECOVERY_POINTS,
}
"""The files of a directory, each with the file with which it is swapped."""
ROWS = [
    (file, damage, running)
    for file, damage, running in product(OTHERS, DAMAGES, (False, True))
    if not (running and file == names.CLEAN_SHUTDOWN)  # This file exists only while the engine is closed.
]


class DamagedDirectory(Damaged):
    """Two replicas whose directories have every file of the damage table."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.two.scrub()
        self._note(1)
        self.stale = self._contents()
        self.two.reopen()
        self._note(2)

    def _note(self, count: int) -> None:
        """Record a committed micro-batch, and a named producer's position, in both directories."""
        engine = self.two.engine
        for root in self.two.roots:
            engine._commits.write_copy(root, {"q": CommittedQuery(count, ProducerId(1), 0)})
            engine.producers.write_copy(
                root, {("p", "s"): InputProgress(ProducerId(1), 0, position=count, runs=1)}
            )

    def path(self, name: str) -> Path:
        return self.two.roots[self.number - 1] / name

    def start(self, file: str) -> None:
        """Open the directories. If that is refused, the error must name the directory, and its remedy must work."""
        try:
            self.two.open()
        except (MissingReplicasError, ForkedReplicasError) as error:
            assert str(self.path("")) in str(error)
            self.two.open(self.two.roots[2 - self.number], left_out=(self.path(""),))
        self.two.engine.catch_up()


def whole(two: Replicated) -> bool:
    """Return whether both directories have all records and files."""
    if (LINES, 2) != (two.lines(), len(two.in_sync())):
        return False
    assert two.files(1) == two.files(2)
    copies = (two.engine._commits.read_copy(root)["q"].batch for root in two.roots)
    positions = (two.engine.producers.read_copy(root)["p", "s"].position for root in two.roots)
    assert [2] * 4 == [*copies, *positions]
    return True


@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
@pytest.mark.parametrize(("file", "damage", "running"), ROWS)
def test_it_is_healed_or_named(
    file: str, damage: Callable[[Damaged, str, str], None], running: bool, number: int
):
    """A start rewrites the file, or its error names the directory. Once the file is restored, the directory serves."""
    one = DamagedDirectory(number)
    two, good = one.two, logs(one.two.files(3 - number))
    if not running:
        two.engine.close()
    before = one._contents()
    damage(one, file, OTHERS[file])
    if running:
        assert LINES == two.lines()
        two.scrub()
        two.engine.close()
    one.start(file)
    assert LINES == two.lines()
    if not whole(two):
        two.engine.close()
        for name in (file, OTHERS[file]):
            one.write(name, before[name])
        one.start(file)
    assert whole(two)
    assert [good, good] == [logs(two.files(each)) for each in (1, 2)]
