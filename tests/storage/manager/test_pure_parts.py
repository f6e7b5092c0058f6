"""Tests of parts of the manager that need no logs: directory contents, registry, schedule, topic rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage import errors
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.directories.contents import read_contents
from topicfs.storage.disk.filesystem import DirectoryEntry
from topicfs.storage.disk.names import DirectoryMark, check_new_topic, check_partitions
from topicfs.storage.duties.schedule import Duty, Plan, Schedule, plan_duties
from topicfs.storage.model import Timestamp
from topicfs.storage.topics.registry import (
    PendingChange,
    RegistryCopy,
    TopicEntry,
    TopicRegistry,
    decode_registry,
    encode_registry,
    merge_copies,
    read_copy,
)
from topicfs.storage.topics.topic import (
    lenient_config,
    merge_overrides,
    own_overrides,
)

DATA = Path("/data")
UNIQUE = "0123456789abcdef0123456789abcdef"
TOPIC_ID = "1EvPSKI_SvihSIy3lMKMvg"


def directories(*names: str) -> list[DirectoryEntry]:
    return [DirectoryEntry(name, is_directory=True) for name in names]


def test_names_show_the_contents_of_a_directory() -> None:
    """A directory's name shows whether it is a partition, a marked directory, or one of Kafka's own two directories.

    Regular files are skipped.
    """
    contents = read_contents(
        [
            *directories(
                "b-1", "b-0", "a-10", "__cluster_metadata-0", "remote-log-index-cache",
                f"c-0.{UNIQUE}-delete",                f"d-0.{UNIQUE}-stray", f"e-0.{UNIQUE}-future",
            ),
            DirectoryEntry("meta.properties", is_directory=False),
            DirectoryEntry("lost+found", is_directory=False),
        ],
        DATA,
    )  # fmt: skip
    assert {"a": [10], "b": [0, 1]} == contents.topics()
    assert contents.marked == {
        DirectoryMark.DELETE: (f"c-0.{UNIQUE}-delete",),
        DirectoryMark.STRAY: (f"d-0.{UNIQUE}-stray",),
        DirectoryMark.FUTURE: (f"e-0.{UNIQUE}-future",),
    }


@pytest.mark.parametrize(
    "name", ["lost+found", "photos", "orders", "orders-01", "my files-0", "orders-0.x-gone"]
)
def test_other_directories_are_refused(name: str) -> None:
    """A data directory with a subdirectory that is not Kafka's is refused. The error has the subdirectory's path."""
    with pytest.raises(errors.NotALogDirectoryError) as caught:
        read_contents(directories("orders-0", name), DATA)
    assert str(caught.value).startswith(f"/data/{name}: ")


def files(*names: str) -> list[DirectoryEntry]:
    return [DirectoryEntry(name, is_directory=False) for name in names]


@pytest.mark.parametrize(
    "entries",
    [
        [],
        files(".lock"),
        files("meta.properties", "bootstrap.checkpoint", "notes.txt"),
        files("topicfs.reserve", "notes.txt"),
        files("recovery-point-offset-checkpoint.tmp", "notes.txt"),
        files("topicfs.write.q.0.requested", "notes.txt"),
        [*files("notes.txt"), *directories("orders-0")],
        [*files("notes.txt"), *directories(f"c-0.{UNIQUE}-delete")],
        [*files("notes.txt"), *directories("__cluster_metadata-0")],
    ],
)
def test_any_sign_of_a_data_directory_admits_foreign_files(entries: list[DirectoryEntry]) -> None:
    """Foreign files are accepted next to a data directory's files. A directory that has only a lock counts as new."""
    read_contents(entries, DATA)


@pytest.mark.parametrize("also", [(), (".lock",), ("topicfs.cache",)])
def test_foreign_files_alone_are_no_data_directory(also: tuple[str, ...]) -> None:
    """A directory that has only foreign files is refused, and the error names one of these files."""
    with pytest.raises(
        errors.NotALogDirectoryError, match=r"^/data: is not a data directory: it holds notes.txt and "
    ):
        read_contents(files("notes.txt", *also), DATA)


ENTRIES = {
    "b": TopicEntry(TOPIC_ID, {"retention.ms": "-1"}, PendingChange.CREATE, 3),
    "a": TopicEntry(TOPIC_ID, {}, PendingChange.DELETE),
    "c": TopicEntry(TOPIC_ID, {"cleanup.policy": "compact,delete"}),
}


def test_registry_reads_back() -> None:
    """The registry's entries are read as they were written, and its file is sorted by topic name."""
    groups = {"billing": {"commit": "manual"}, "b": {"assignor": "range"}}
    data = encode_registry(RegistryCopy(ENTRIES, 7, groups=groups))
    assert (ENTRIES, 7, (), groups) == decode_registry(data, file=DATA)
    assert data.index(b'"a"') < data.index(b'"b"') < data.index(b'"c"')
    assert data.endswith(b"}\n")


def test_registry_of_a_newer_version_may_have_more_fields() -> None:
    """Unknown fields of a newer registry are ignored."""
    data = b'{"version": 1, "more": 1, "topics": {"t": {"id": "x", "overrides": {}, "more": []}}}'
    assert decode_registry(data, file=DATA) == ({"t": TopicEntry("x")}, 0, (), {})


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'{"version": 2, "topics": {}}', b'{"version": 1}',
     b'{"version": 1, "topics": []}',     b'{"version": 1, "topics": {"t": {}}}',
     b'{"version": 1, "topics": {"t": {"id": "x", "overrides": {"a": 1}}}}',
     b'{"version": 1, "topics": {"t": {"id": "x", "overrides": {}, "pending": "rest"}}}', b"\xff",
     b'{"version": 1, "topics": {}, "groups": {"g": {"commit": 1}}}', b'{"version": 1, "topics": {}, "groups": []}'],
)  # fmt: skip
def test_damaged_registry_is_corruption(data: bytes) -> None:
    """A damaged registry never counts as empty, because default settings could delete records."""
    with pytest.raises(errors.CorruptionError) as caught:
        decode_registry(data, file=DATA / "topicfs.topics")
    assert DATA / "topicfs.topics" == caught.value.file


@pytest.fixture
def registry(disk: SimulatedDisk) -> TopicRegistry:
    """An empty registry on a disk."""
    disk.make_directory(DATA)
    return TopicRegistry.read(DATA, disk)


def test_registry_changes_are_all_or_nothing(disk: SimulatedDisk, registry: TopicRegistry) -> None:
    """A change of the registry that cannot be written is made neither on disk nor in memory."""
    registry.put({"a": TopicEntry(TOPIC_ID), "b": TopicEntry(TOPIC_ID)})
    disk.fail("rename")
    with pytest.raises(OSError, match="topics"):
        registry.put({"a": None, "b": TopicEntry(TOPIC_ID, {"retention.ms": "5"})})
    for one in (registry, TopicRegistry.read(DATA, disk)):
        assert one.entries == {"a": TopicEntry(TOPIC_ID), "b": TopicEntry(TOPIC_ID)}


def test_registry_takes_a_failed_change_back(disk: SimulatedDisk, registry: TopicRegistry) -> None:
    """After a failed write that may have reached the disk, the old content is written again."""
    registry.put({"a": TopicEntry(TOPIC_ID)})
    disk.fail("sync_directory", times=2)
    with pytest.raises(OSError, match="Input/output"):
        registry.put({"a": TopicEntry(TOPIC_ID, {}, PendingChange.DELETE)})
    registry.update_copies()
    assert TopicRegistry.read(DATA, disk).entries == {"a": TopicEntry(TOPIC_ID)}
    calls = len(disk.calls)
    registry.update_copies()
    assert calls == len(disk.calls)


def two_directories() -> tuple[SimulatedDisk, list[Path]]:
    disk, directories = SimulatedDisk(), [Path("/a"), Path("/b")]
    for directory in directories:
        disk.make_directory(directory)
    return disk, directories


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_change_taken_back_is_older_than_what_takes_it_back(order: tuple[int, int]) -> None:
    """A failed change may be stored in one directory. The copy that undoes the change is newer.

    So the order in which the copies are read does not matter.
    """
    disk, directories = two_directories()
    registry = TopicRegistry({one: read_copy(one, disk) for one in directories}, disk)
    registry.put({"t": TopicEntry(TOPIC_ID)})
    disk.fail("sync_directory", suffix="/b")
    disk.fail("write_bytes", after=1, suffix="/b/topicfs.topics.tmp")
    with pytest.raises(OSError, match="Input/output"):
        registry.put({"t": TopicEntry(TOPIC_ID, {}, PendingChange.DELETE)})
    copies = [read_copy(directories[number], disk) for number in order]
    assert merge_copies(copies).entries == {"t": TopicEntry(TOPIC_ID)}


def test_a_directory_that_joins_never_counts_for_more_than_what_is_served() -> None:
    """After a directory joins, the settings that were already served count as the newest.

    This holds even if the settings in the joined directory were changed more often.
    """
    disk, directories = two_directories()
    alone = TopicRegistry.read(directories[1], disk)
    for number in range(9):
        alone.put({"t": TopicEntry(TOPIC_ID, {"retention.ms": str(number)})})
    registry = TopicRegistry.read(directories[0], disk)
    served = TopicEntry(TOPIC_ID, {"retention.ms": "-1"})
    registry.put({"t": served})
    registry.join(directories[1])
    disk.fail("write_bytes", suffix="/b/topicfs.topics.tmp")
    with pytest.raises(OSError, match="Input/output"):
        registry.update_copies()
    assert merge_copies(read_copy(one, disk) for one in directories).entries == {"t": served}


def test_registry_writes_only_changes(disk: SimulatedDisk, registry: TopicRegistry) -> None:
    """Storing an entry that already exists writes nothing."""
    registry.put({"a": None})
    assert {} == disk.tree()
    registry.put({"a": TopicEntry(TOPIC_ID)})
    calls = len(disk.calls)
    registry.put({"a": TopicEntry(TOPIC_ID)})
    assert calls == len(disk.calls)


PLANS = {Duty.RETENTION: Plan(300, 30), Duty.HIGH_WATERMARKS: Plan(5, 5)}


def test_duties_begin_after_their_delay_and_return_after_their_period() -> None:
    """A duty is due after its delay, and then one period after each run."""
    schedule = Schedule.begin(PLANS, Timestamp(1000))
    assert () == schedule.due(Timestamp(1004))
    assert schedule.due(Timestamp(1005)) == (Duty.HIGH_WATERMARKS,)
    assert schedule.due(Timestamp(1030)) == (Duty.RETENTION, Duty.HIGH_WATERMARKS)
    later = schedule.done((Duty.RETENTION, Duty.HIGH_WATERMARKS), Timestamp(1031))
    assert () == later.due(Timestamp(1035))
    assert later.due(Timestamp(1036)) == (Duty.HIGH_WATERMARKS,)
    assert later.due(Timestamp(1331)) == (Duty.RETENTION, Duty.HIGH_WATERMARKS)


def test_clock_set_back_makes_duties_due() -> None:
    """If the clock was set back, duties are due immediately."""
    schedule = Schedule.begin(PLANS, Timestamp(1_000_000))
    assert schedule.due(Timestamp(10)) == (Duty.RETENTION, Duty.HIGH_WATERMARKS)


def test_every_duty_is_planned() -> None:
    """Each duty is planned, with Kafka's period."""
    plans = plan_duties(EngineConfig())
    assert set(Duty) == set(plans)
    assert Plan(300_000, 30_000) == plans[Duty.RETENTION]
    assert Plan(60_000, 30_000) == plans[Duty.RECOVERY_POINTS]
    assert Plan(5_000, 5_000) == plans[Duty.HIGH_WATERMARKS]


def test_new_topics_are_checked() -> None:
    """Illegal, reserved, existing and colliding names are refused, each with its own error."""
    check_new_topic("a-b", ["a.b"])
    for name in ("", "a/b", "__cluster_metadata"):
        with pytest.raises(errors.InvalidNameError):
            check_new_topic(name, [])
    with pytest.raises(errors.TopicExistsError, match="exists"):
        check_new_topic("a.b", ["a.b"])
    with pytest.raises(errors.TopicExistsError, match="collides with topic a_b"):
        check_new_topic("a.b", ["a_b"])


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_partition_counts_are_bounded(count: int) -> None:
    """A topic has 1 to 10,000 partitions."""
    check_partitions(1)
    check_partitions(10_000)
    with pytest.raises(errors.InvalidConfigError, match=f"partitions={count}"):
        check_partitions(count)


def test_overrides_are_merged() -> None:
    """None removes an override, and is accepted even if there is no override. An unknown name is refused."""
    present = {"retention.ms": "1", "segment.ms": "2"}
    merged = merge_overrides(present, {"retention.ms": None, "flush.ms": "3", "segment.bytes": None})
    assert {"segment.ms": "2", "flush.ms": "3"} == merged
    with pytest.raises(errors.InvalidConfigError, match="no such topic setting"):
        merge_overrides(present, {"nonsense": None})


def test_kept_overrides_are_applied_as_far_as_they_are_valid() -> None:
    """Invalid stored overrides are reported, and the valid ones take effect."""
    config, problems = lenient_config(
        {"retention.ms": "x", "segment.ms": "9", "new.setting": "1"}, TopicConfig()
    )
    assert TopicConfig(segment_ms=9) == config
    assert 2 == len(problems)


def test_adopted_topics_keep_their_records() -> None:
    """A topic without settings gets the settings of new topics. An internal topic of Kafka gets Kafka's settings."""
    assert {"retention.ms": "-1"} == own_overrides("t", {"retention.ms": "-1"})
    offsets_topic, _ = lenient_config(own_overrides("__consumer_offsets", {}), TopicConfig())
    assert ("compact",) == offsets_topic.cleanup_policy
