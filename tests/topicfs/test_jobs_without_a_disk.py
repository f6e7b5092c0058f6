"""Tests of `topicfs pipeline … --without DIR`: jobs over replicated directories after a disk was lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines, read_lines
from tests.topicfs.conftest import Topicfs, assert_refused
from topicfs.groups.engine import EngineGroups
from topicfs.replication import open_directories
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.model import TopicPartition

TWO = EngineConfig()._replace(replication_factor=2)


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    """Two replica directories with `orders` of three records, a topic `copy`, and a group's position."""
    found = tmp_path / "r1", tmp_path / "r2"
    with closing(open_directories(found, replicated=True, config=TWO)) as engine:
        append_lines(engine.create_topic("orders").partitions()[0], "a\nb\nc\n")
        engine.create_topic("copy")
        EngineGroups(engine).set_positions("earlier", {TopicPartition("orders", 0): 1})
    return found


def unmount(disk: Path) -> None:
    """Replace the directory by an empty one, as if its disk was unmounted."""
    shutil.rmtree(disk)
    disk.mkdir()


def lines(left: Path, lost: Path, topic: str) -> list[str]:
    with closing(open_directories([left], read_only=True, left_out=[lost])) as engine:
        return read_lines(engine.partition(topic, 0))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("lose", [shutil.rmtree, unmount])
@pytest.mark.parametrize("which", [0, 1])
def test_jobs_do_without_a_lost_disk(
    topicfs: Topicfs, roots: tuple[Path, Path], tmp_path: Path, lose: Callable[[Path], None], which: int
):
    """With --without, each job reads, writes and commits in the directory that remains."""
    lost, left = roots[which], roots[1 - which]
    lose(lost)
    place = ("--data", f"{roots[0]},{roots[1]}", "--without", str(lost))
    archive, progress = str(tmp_path / "archive"), str(tmp_path / "progress")
    for job in (
        ("archive", "orders", archive, "--commit-group", "archive"),
        ("replay", "orders", "copy", "--checkpoint", progress, "--commit-group", "copier"),
        ("aggregate", "orders", "copy", "--window", "1 hour", "--checkpoint", f"{progress}-2"),
        ("report", "orders"),
        ("verify",),
    ):
        ran = topicfs("pipeline", *job, *place)
        assert (0, job) == (ran.status, job), ran.errors
    assert ["a", "b", "c"] == lines(left, lost, "copy")[:3]
    described = topicfs("groups", "describe", "archive", "copier", "--json", "--data", str(left))
    assert [0, 0] == [one["lag"] for one in json.loads(described.text)]


@pytest.mark.parametrize("lose", [shutil.rmtree, unmount])
@pytest.mark.parametrize("job", [("replay", "orders", "copy"), ("archive", "orders", "there"), ("verify",)])
def test_a_job_that_misses_a_disk_names_the_remedy(
    topicfs: Topicfs, roots: tuple[Path, Path], lose: Callable[[Path], None], job: tuple[str, ...]
):
    """If a directory is missing, a job fails, and its error names the directory and the option --without."""
    lose(roots[1])
    ran = topicfs("pipeline", *job, "--data", f"{roots[0]},{roots[1]}")
    assert 1 == ran.status
    assert ran.errors.decode().startswith(f"topicfs: {roots[1]}: no")
    assert "leave it out: --without DIR" in ran.errors.decode()


def test_an_archive_comes_back_only_without_replicas(topicfs: Topicfs, tmp_path: Path):
    """A restore refuses --without, because it does not write to replicas."""
    ran = topicfs("pipeline", "restore", str(tmp_path), "--without", "/r1")
    assert_refused(ran, "restore into a directory without replicas", status=2)


def test_a_cluster_has_no_directory_to_do_without(topicfs: Topicfs):
    """The option --without is refused for a cluster, before Spark starts."""
    ran = topicfs(
        "pipeline", "archive", "orders", "there", "--data", "kafka://127.0.0.1:1", "--without", "/r1"
    )
    assert_refused(ran, "--without is for data directories", status=2)
