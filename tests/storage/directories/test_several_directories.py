"""One engine over two data directories, each on a disk of its own: placing, failing, coming back, crashing."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

from storage.checkpoints.meta_properties import read_meta_properties
from storage.config.broker import EngineConfig
from storage.engine import Partition
from storage.errors import (
    DirectoryLockedError,
    DuplicatePartitionError,
    NotALogDirectoryError,
    PartitionOfflineError,
    StorageError,
    TopicExistsError,
)
from storage.log.log import Log
from storage.manager import LogManager, open_engine
from storage.topics.registry import PendingChange, RegistryCopy, TopicEntry, merge_copies
from tests.doubles.engines import QUIET, append_lines, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.mortal_disk import End
from tests.doubles.several_disks import SeveralDisks
from tests.doubles.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.slow

A, B = Path("/a"), Path("/b")
ALWAYS = 1_000_000
WRITES = ("write_bytes", "pwrite", "rename", "sync", "make_directory", "sync_directory", "unlink")


@pytest.fixture
def disks() -> SeveralDisks:
    return SeveralDisks({A: SimulatedDisk(), B: SimulatedDisk()})


def opened(
    disks: SeveralDisks, clock: ManualClock | None = None, *directories: Path, config: EngineConfig = QUIET
) -> LogManager:
    return open_engine(
        directories or (A, B),
        read_only=disks.read_only,
        files=disks,
        clock=clock or ManualClock(),
        config=config,
    )


def places(engine: LogManager) -> dict[str, str]:
    """Each partition's directory."""
    return {
        f"{name}-{number}": str(partition.directory.parent)
        for name, topic in engine.topics().items()
        for number, partition in topic.partitions().items()
    }


def states(engine: LogManager) -> dict[str, str]:
    """Each partition's state, without the reason."""
    return {
        f"{name}-{number}": partition.status().state.split(":")[0]
        for name, topic in engine.topics().items()
        for number, partition in topic.partitions().items()
    }


def contents(engine: LogManager) -> dict[str, list[str]]:
    return {
        f"{name}-{number}": read_lines(partition)
        for name, topic in engine.topics().items()
        for number, partition in topic.partitions().items()
    }


def break_disk(disk: SimulatedDisk) -> None:
    """Every change fails from now on, as on a disk that the kernel made read-only."""
    for operation in WRITES:
        disk.fail(operation, times=ALWAYS)


def filled(disks: SeveralDisks, clock: ManualClock | None = None) -> LogManager:
    """A topic with a partition in each directory, a line in both."""
    engine = opened(disks, clock)
    engine.create_topic("t", partitions=2, overrides={"max.message.bytes": "7000"})
    for number, partition in engine.topic("t").partitions().items():
        append_lines(partition, f"{number}\n")
    return engine


def topic_files(disks: SeveralDisks) -> list[dict[str, object]]:
    return [json.loads(disks.read_bytes(root / "topicfs.topics")) for root in (A, B)]


# Placing.


def test_a_new_partition_goes_where_there_are_the_fewest(disks: SeveralDisks) -> None:
    """Counted over all topics, one after the other; the first of equals."""
    engine = opened(disks)
    engine.create_topic("t", partitions=3)
    engine.create_topic("u")
    engine.create_topic("v", partitions=2)
    assert {"t-0": "/a", "t-1": "/b", "t-2": "/a", "u-0": "/b", "v-0": "/a", "v-1": "/b"} == places(engine)
    engine.delete_topic("t")
    engine.create_topic("w", partitions=2)
    assert ("/a", "/a") == (places(engine)["w-0"], places(engine)["w-1"])


def test_everything_survives_a_restart(disks: SeveralDisks) -> None:
    """Records, places, settings; each directory has its own marker, checkpoints and ids."""
    engine = filled(disks)
    before = places(engine)
    engine.close()
    for root in (A, B):
        names = [entry.name for entry in disks.list_directory(root) if not entry.is_directory]
        assert [
            ".kafka_cleanshutdown",
            "meta.properties",
            "recovery-point-offset-checkpoint",
            "replication-offset-checkpoint",
            "topicfs.reserve",
            "topicfs.topics",
        ] == names
    assert b"0\n1\nt 0 1\n" == disks.read_bytes(A / "recovery-point-offset-checkpoint")
    assert b"0\n1\nt 1 1\n" == disks.read_bytes(B / "recovery-point-offset-checkpoint")
    again = opened(disks)
    assert (before, ()) == (places(again), again.warnings)
    assert {"t-0": ["0"], "t-1": ["1"]} == contents(again)
    assert {"retention.ms": "-1", "max.message.bytes": "7000"} == again.topic("t").overrides


def test_directories_are_of_one_node(disks: SeveralDisks) -> None:
    """One cluster id and one node id, an own id for each; a new directory joins the old one."""
    opened(disks, None, A, config=EngineConfig(node_id=5)).close()
    opened(disks).close()
    first, second = (read_meta_properties(disks, root) for root in (A, B))
    assert first is not None
    assert second is not None
    assert (first.cluster_id, 5) == (second.cluster_id, second.node_id)
    assert first.directory_id != second.directory_id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((b"cluster.id=", b"cluster.id=x"), "cluster.id"),
        ((b"node.id=1", b"node.id=2"), "node.id=2"),
    ],
)
def test_directories_of_different_nodes_are_refused(
    disks: SeveralDisks, change: tuple[bytes, bytes], message: str
) -> None:
    """They cannot belong together, and nothing is changed."""
    opened(disks).close()
    meta = disks.read_bytes(B / "meta.properties")
    disks.write_bytes(B / "meta.properties", meta.replace(*change))
    with pytest.raises(StorageError, match=f"/b: has .*{message}.*/a has"):
        opened(disks)


def test_a_copy_of_a_directory_is_refused(disks: SeveralDisks) -> None:
    """Two directories with one directory.id are one and its copy."""
    opened(disks).close()
    disks.write_bytes(B / "meta.properties", disks.read_bytes(A / "meta.properties"))
    with pytest.raises(StorageError, match=r"directory\.id of /a"):
        opened(disks)


def test_the_same_partition_in_two_directories_is_refused(disks: SeveralDisks) -> None:
    """Nobody can tell which counts: not to write, and not to read."""
    filled(disks).close()
    disks.make_directory(B / "t-0")
    for view in (disks, disks.read_only_view()):
        with pytest.raises(DuplicatePartitionError, match="t-0: stands in /a and in /b"):
            opened(view)


def test_a_directory_given_twice_is_refused(disks: SeveralDisks) -> None:
    """It would be locked twice by one process, and counted twice."""
    with pytest.raises(StorageError, match="given twice"):
        opened(disks, None, A, A)


def test_someone_elses_directory_among_them_is_refused(disks: SeveralDisks) -> None:
    """A mistake is no failure: the other one is not served without it."""
    disks.make_directory(B)
    disks.make_directory(B / "photos")
    with pytest.raises(NotALogDirectoryError, match="/b/photos"):
        opened(disks)


# The settings, in every directory.


def test_settings_stand_in_every_directory(disks: SeveralDisks) -> None:
    """Either alone knows all of them."""
    filled(disks).close()
    first, second = topic_files(disks)
    assert first == second
    assert ["/a", "/b"] == first["directories"]
    disks.unlink(A / "topicfs.topics")
    assert "7000" == opened(disks).topic("t").overrides["max.message.bytes"]
    first, second = topic_files(disks)
    assert first == second


def test_the_newest_copy_of_the_settings_counts(disks: SeveralDisks) -> None:
    """A kill between two writes leaves one directory a change behind; the change was made."""
    engine = filled(disks)
    old = disks.read_bytes(A / "topicfs.topics")
    engine.alter_config("t", {"max.message.bytes": "9000"})
    engine.close()
    disks.write_bytes(A / "topicfs.topics", old)
    assert 9000 == opened(disks).topic("t").config.max_message_bytes
    first, second = topic_files(disks)
    assert first == second


def test_what_an_older_copy_alone_knows_is_kept() -> None:
    """But for topics that were being made: that was taken back in the newer one."""
    newer = RegistryCopy({"t": TopicEntry("new")}, 5)
    older = RegistryCopy(
        {
            "t": TopicEntry("old"),
            "u": TopicEntry("u"),
            "making": TopicEntry("m", {}, PendingChange.CREATE, 2),
            "dying": TopicEntry("d", {}, PendingChange.DELETE),
        },
        3,
    )
    expected = {
        "t": TopicEntry("new"),
        "u": TopicEntry("u"),
        "dying": TopicEntry("d", {}, PendingChange.DELETE),
    }
    assert merge_copies([older, newer]) == (expected, 5, ())


def test_a_change_that_finds_no_room_in_one_directory_is_made_in_none(disks: SeveralDisks) -> None:
    """A full disk is no failed one: the change is refused as a whole, and can be made later."""
    engine = filled(disks)
    disks.disks[B].fail("write_bytes", suffix="topicfs.topics.tmp", number=errno.ENOSPC, times=2)
    with pytest.raises(OSError, match="No space"):
        engine.alter_config("t", {"max.message.bytes": "9000"})
    assert 7000 == engine.topic("t").config.max_message_bytes
    assert ["online", "online"] == [status.state for status in engine.directories()]
    engine.close()
    again = opened(disks)
    assert 7000 == again.topic("t").config.max_message_bytes
    again.alter_config("t", {"max.message.bytes": "9000"})
    assert topic_files(disks)[0] == topic_files(disks)[1]


# A directory that fails.


def fail_by_checkpoint(engine: LogManager, disks: SeveralDisks, clock: ManualClock) -> None:
    """A duty finds that the high watermarks cannot be written."""
    break_disk(disks.disks[B])
    clock.advance(10_000)
    engine.maintenance(clock())


def fail_by_settings(engine: LogManager, disks: SeveralDisks, clock: ManualClock) -> None:
    """A change of settings meets the trouble first; it is made where it can be."""
    break_disk(disks.disks[B])
    engine.alter_config("t", {"max.message.bytes": "8000"})


FAILURES = [fail_by_checkpoint, fail_by_settings]


@pytest.mark.parametrize("fail", FAILURES)
def test_a_failed_directory_takes_only_its_own_partitions_offline(
    disks: SeveralDisks, clock: ManualClock, fail: Callable[[LogManager, SeveralDisks, ManualClock], None]
) -> None:
    """The others take writes, all can be read, new partitions go elsewhere; status says why."""
    engine = filled(disks, clock)
    fail(engine, disks, clock)
    assert {"t-0": "online", "t-1": "offline"} == states(engine)
    assert "/b failed: " in engine.partition("t", 1).status().state
    assert "Input/output error" in engine.partition("t", 1).status().state
    with pytest.raises(PartitionOfflineError, match="/b failed"):
        append_lines(engine.partition("t", 1), "x\n")
    append_lines(engine.partition("t", 0), "more\n")
    assert {"t-0": ["0", "more"], "t-1": ["1"]} == contents(engine)
    assert [
        ("/a", "online", 1),
        ("/b", "offline", 1),
    ] == [(one.path, one.state.split(":")[0], one.partitions) for one in engine.directories()]
    assert [line for line in engine.warnings if line.startswith("/b: failed")] != []
    engine.create_topic("u", partitions=2)
    engine.add_partitions("t", total=3)
    assert ["/a", "/a", "/a"] == [places(engine)[name] for name in ("u-0", "u-1", "t-2")]
    engine.close()
    assert disks.exists(A / ".kafka_cleanshutdown")
    assert not disks.exists(B / ".kafka_cleanshutdown")


def test_a_directory_that_vanished_has_failed(disks: SeveralDisks, clock: ManualClock) -> None:
    """It is found out within a second, though nothing had to be written there."""
    engine = filled(disks, clock)
    disks.disks[B].rename(B, Path("/away"))
    clock.advance(1_000)
    engine.maintenance(clock())
    assert {"t-0": "online", "t-1": "offline"} == states(engine)
    status = engine.partition("t", 1).status()
    assert (
        "offline: /b failed: No such file or directory: /b/meta.properties",
        0,
    ) == (status.state, status.index_bytes)
    disks.disks[B].rename(Path("/away"), B)
    append_lines(engine.reopen_partition("t", 1), "more\n")
    assert {"t-0": ["0"], "t-1": ["1", "more"]} == contents(engine)


def test_a_partition_of_its_own_trouble_is_offline_alone(disks: SeveralDisks, clock: ManualClock) -> None:
    """A flush that fails says something of one file; its neighbours in the directory go on."""
    engine = filled(disks, clock)
    engine.create_topic("u", partitions=2)
    disks.disks[B].fail("sync", suffix="t-1/00000000000000000000.log")
    with pytest.raises(OSError, match="t-1"):
        engine.partition("t", 1).sync()
    assert {"t-0": "online", "t-1": "offline", "u-0": "online", "u-1": "online"} == states(engine)
    assert ["online", "online"] == [one.state for one in engine.directories()]


def test_reopening_one_partition_brings_its_directory_back(disks: SeveralDisks, clock: ManualClock) -> None:
    """All that stood there is served again, with what was written before; settings changed meanwhile arrive."""
    engine = filled(disks, clock)
    engine.create_topic("u", partitions=2)
    append_lines(engine.partition("u", 1), "u\n")
    fail_by_checkpoint(engine, disks, clock)
    with pytest.raises(OSError, match="Input/output"):
        engine.reopen_partition("t", 1)
    assert {"t-0": "online", "t-1": "offline", "u-0": "online", "u-1": "offline"} == states(engine)
    engine.alter_config("t", {"max.message.bytes": "9000"})
    disks.disks[B].heal()
    heard: list[dict[str, str]] = []
    engine.listen(lambda: heard.append(states(engine)))
    engine.partition("u", 1).listen(lambda: heard.append({}))
    engine.reopen_partition("t", 1)
    assert heard == [dict.fromkeys(("t-0", "t-1", "u-0", "u-1"), "online"), {}]
    assert ["u"] == contents(engine)["u-1"]
    append_lines(engine.partition("t", 1), "more\n")
    assert 9000 == engine.partition("t", 1).config.max_message_bytes
    engine.close()
    assert topic_files(disks)[0] == topic_files(disks)[1]
    again = opened(disks, clock)
    assert {"t-0": ["0"], "t-1": ["1", "more"], "u-0": [], "u-1": ["u"]} == contents(again)
    assert () == again.warnings


def test_a_topic_deleted_without_a_directory_is_gone_when_that_comes_back(
    disks: SeveralDisks, clock: ManualClock
) -> None:
    """Its name cannot be used again before: what is left would be taken for the new topic's."""
    engine = filled(disks, clock)
    engine.create_topic("other", partitions=2)
    fail_by_checkpoint(engine, disks, clock)
    engine.delete_topic("t")
    assert ["other"] == list(engine.topics())
    with pytest.raises(StorageError, match="may be left in /b"):
        engine.create_topic("t")
    disks.disks[B].heal()
    assert disks.exists(B / "t-1")
    engine.reopen_partition("other", 1)
    assert not disks.exists(B / "t-1")
    assert "t" not in topic_files(disks)[0]["topics"]
    assert [] == read_lines(engine.create_topic("t", partitions=2).partitions()[1])
    clock.advance(100_000)
    engine.maintenance(clock())
    engine.close()
    names = [entry.name for entry in disks.list_directory(B) if entry.is_directory]
    assert ["other-1", "t-1"] == names


def test_without_any_directory_nothing_can_be_changed(disks: SeveralDisks, clock: ManualClock) -> None:
    """What was acknowledged must stand somewhere; reads go on, and one can come back alone."""
    engine = filled(disks, clock)
    for disk in disks.disks.values():
        break_disk(disk)
    clock.advance(10_000)
    engine.maintenance(clock())
    assert {"offline"} == set(states(engine).values())
    for change in (
        lambda: engine.alter_config("t", {"segment.ms": "5"}),
        lambda: engine.create_topic("u"),
        lambda: engine.delete_topic("t"),
    ):
        with pytest.raises(OSError, match="no data directory serves"):
            change()
    assert "segment.ms" not in engine.topic("t").overrides
    assert {"t-0": ["0"], "t-1": ["1"]} == contents(engine)
    disks.disks[A].heal()
    engine.reopen_partition("t", 0)
    engine.alter_config("t", {"segment.ms": "5"})
    assert {"t-0": "online", "t-1": "offline"} == states(engine)


# Opening without one of them.


def test_opening_without_a_directory(disks: SeveralDisks, clock: ManualClock) -> None:
    """The partitions that must stand there are offline and say why; nothing is taken for gone, and nothing made again."""
    filled(disks, clock).close()
    disks.disks[B].rename(B, Path("/away"))
    disks.disks[B].make_directory(B)  # What an empty mountpoint looks like.
    engine = opened(disks, clock)
    assert {"t-0": "online", "t-1": "offline"} == states(engine)
    assert "is its disk mounted?" in engine.partition("t", 1).status().state
    assert [] == list(disks.list_directory(B))
    with pytest.raises(TopicExistsError):
        engine.create_topic("t")
    engine.add_partitions("t", total=3)
    assert "/a" == places(engine)["t-2"]
    engine.alter_config("t", {"max.message.bytes": "9000"})
    with pytest.raises(OSError, match=r"meta\.properties"):
        engine.reopen_partition("t", 1)
    engine.close()
    disks.disks[B].remove_directory(B)
    engine = opened(disks, clock)
    assert {"t-0": "online", "t-1": "offline", "t-2": "online"} == states(engine)
    disks.disks[B].rename(Path("/away"), B)
    engine.reopen_partition("t", 1)
    assert {"t-0": ["0"], "t-1": ["1"], "t-2": []} == contents(engine)
    assert 9000 == engine.partition("t", 1).config.max_message_bytes
    engine.close()
    assert () == opened(disks, clock).warnings


def test_a_topic_that_stands_wholly_in_a_missing_directory_is_known(
    disks: SeveralDisks, clock: ManualClock
) -> None:
    """It is offline, not unknown: its name is taken, and its settings stay."""
    engine = filled(disks, clock)
    engine.create_topic("here")
    engine.create_topic("there", overrides={"max.message.bytes": "77"})
    assert "/b" == places(engine)["there-0"]
    engine.close()
    disks.disks[B].fail("list_directory", times=ALWAYS)
    engine = opened(disks, clock)
    assert "offline" == states(engine)["there-0"]
    assert 77 == engine.topic("there").config.max_message_bytes
    engine.close()
    disks.disks[B].heal()
    again = opened(disks, clock)
    assert ("online", 77) == (states(again)["there-0"], again.topic("there").config.max_message_bytes)


def test_without_any_directory_there_is_no_engine(disks: SeveralDisks) -> None:
    """The error is the last directory's."""
    opened(disks).close()
    for disk in disks.disks.values():
        disk.fail("list_directory", times=ALWAYS)
    with pytest.raises(OSError, match="Input/output error"):
        opened(disks)


def test_a_partition_that_nobody_has_is_told(disks: SeveralDisks) -> None:
    """Two directories served together, now only one of them: what is missing is named, not made."""
    filled(disks).close()
    alone = opened(disks, None, A)
    assert [0] == list(alone.topic("t").partitions())
    assert ("t: not in /a: partition 1",) == alone.warnings
    alone.close()
    again = opened(disks)
    assert {"t-0": ["0"], "t-1": ["1"]} == contents(again)


def test_an_unclean_stop_of_one_recovers_that_one(disks: SeveralDisks) -> None:
    """The marker is a directory's own: of the other nothing is read again."""
    filled(disks).close()
    disks.unlink(B / ".kafka_cleanshutdown")
    disks.write_bytes(B / "recovery-point-offset-checkpoint", b"0\n1\nt 1 0\n")
    engine = opened(disks)
    first, second = (engine.partition("t", number) for number in (0, 1))
    assert (1, 0) == (first.offsets().recovery_point, second.offsets().recovery_point)


def test_looking_at_several_directories(disks: SeveralDisks) -> None:
    """Read-only, nothing is created or changed on either disk."""
    filled(disks).close()
    before = disks.tree()
    looking = opened(disks.read_only_view())
    assert {"t-0": ["0"], "t-1": ["1"]} == contents(looking)
    assert (True, False) == (looking.read_only, looking.foreign)
    looking.close()
    assert before == disks.tree()


def test_one_locked_directory_refuses_all(tmp_path: Path) -> None:
    """Somebody else writes there: a topic must not be served by halves. The other lock is given back."""
    owner = open_engine(tmp_path / "b")
    with pytest.raises(DirectoryLockedError, match="/b: in use"):
        open_engine((tmp_path / "a", tmp_path / "b"))
    assert not (tmp_path / "a" / ".lock").exists()
    owner.close()
    both = open_engine((tmp_path / "a", tmp_path / "b"))
    both.close()
    assert [False, False] == [(tmp_path / name / ".lock").exists() for name in ("a", "b")]


def test_a_directory_that_went_and_came_back_is_locked_anew(tmp_path: Path) -> None:
    """Its lock file is another one: without it a second owner would come in, and ours would delete theirs."""
    clock = ManualClock()
    engine = open_engine((tmp_path / "a", tmp_path / "b"), clock=clock, config=QUIET)
    engine.create_topic("t", partitions=2)
    (tmp_path / "b").rename(tmp_path / "away")
    clock.advance(1_000)
    engine.maintenance(clock())
    (tmp_path / "away").rename(tmp_path / "b")
    (tmp_path / "b" / ".lock").unlink()
    engine.reopen_partition("t", 1)
    with pytest.raises(DirectoryLockedError):
        open_engine(tmp_path / "b")
    engine.close()
    assert not (tmp_path / "b" / ".lock").exists()


def test_a_missing_parent_is_a_mistake(tmp_path: Path) -> None:
    """A directory that never was is no failed one: it is told at once."""
    with pytest.raises(StorageError, match="no such directory to make it in"):
        open_engine((tmp_path / "a", tmp_path / "no" / "such"))


# Kills.


class Killed(BaseException):
    """The process is gone."""


class MortalDisks(SeveralDisks):
    """Disks whose user dies before the change number `last_step` + 1, whichever disk that is on."""

    def __init__(self) -> None:
        self.last_step: int | None = None
        self.steps = 0
        super().__init__({A: _Mortal(self), B: _Mortal(self)})


class _Mortal(SimulatedDisk):
    def __init__(self, together: MortalDisks) -> None:
        super().__init__()
        self.together = together

    def happens(self, operation: str, path: Path, *, changes: bool) -> None:
        together = self.together
        if changes and together.last_step is not None:
            if together.steps >= together.last_step:
                raise Killed(f"{operation} {path}")
            together.steps += 1
        super().happens(operation, path, changes=changes)


State = dict[str, tuple[dict[str, str], dict[int, list[str]]]]


def state_of(engine: LogManager) -> State:
    return {
        name: (dict(topic.overrides), {n: read_lines(p) for n, p in topic.partitions().items()})
        for name, topic in engine.topics().items()
    }


CHANGES: dict[str, Callable[[LogManager], object]] = {
    "create": lambda engine: engine.create_topic("fresh", partitions=3, overrides={"segment.ms": "7"}),
    "extend": lambda engine: engine.add_partitions("t", total=5),
    "delete": lambda engine: engine.delete_topic("t"),
    "alter": lambda engine: engine.alter_config("t", {"segment.ms": "9"}),
}


@pytest.mark.parametrize("end", End, ids=str)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_kill_leaves_the_old_state_or_the_new(change: Callable[[LogManager], object], *, end: End) -> None:
    """Whichever step on whichever disk is the last; afterwards both directories say the same."""
    disks = MortalDisks()
    filled(disks).close()
    start = deepcopy(disks)
    engine = opened(disks)
    allowed = [state_of(engine)]
    change(engine)
    allowed.append(state_of(engine))
    steps, completed = 0, False
    seen = []
    while not completed:
        disks = deepcopy(start)
        for seed, disk in enumerate(disks.disks.values()):
            disk._random.seed(steps * 2 + seed)
        engine = opened(disks)
        disks.last_step, disks.steps = steps, 0
        try:
            change(engine)
            completed = True
        except Killed:
            pass
        disks.last_step = None
        for disk in disks.disks.values():
            end.of(disk)
        again = opened(disks)
        state = state_of(again)
        assert state in allowed, f"after {steps} steps"
        assert topic_files(disks)[0] == topic_files(disks)[1]
        assert "offline" not in states(again).values()
        seen.append(allowed.index(state))
        steps += 1
        assert steps < 500
    assert seen == sorted(seen)
    assert {0, 1} == set(seen)


def test_partitions_are_logs_again_after_reopening(disks: SeveralDisks, clock: ManualClock) -> None:
    """The old object stays offline whoever holds it; the new one is another."""
    engine = filled(disks, clock)
    fail_by_checkpoint(engine, disks, clock)
    old: Partition = engine.partition("t", 1)
    disks.disks[B].heal()
    new = engine.reopen_partition("t", 1)
    assert isinstance(new, Log)
    assert new is not old
    with pytest.raises(PartitionOfflineError):
        append_lines(old, "x\n")
