"""Tests of the engine over logs with a single copy."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from topicfs.replication import open_engine


def test_a_reader_has_groups_and_queues_too(tmp_path: Path):
    """A read-only engine creates its groups and queues on first use, and later returns the same objects."""
    with closing(open_engine(tmp_path / "data")) as engine:
        engine.groups.create("billing")
    with closing(open_engine(tmp_path / "data", read_only=True)) as reader:
        assert ["billing"] == list(reader.groups.listed())
        assert {} == reader.share_groups.groups()
        assert reader.groups is reader.groups


def test_an_open_engine_has_imported_neither_queues_nor_duties(tmp_path: Path):
    """Opening an engine does not import the code of queues, scrubs and duties, which is imported on first use."""
    program = """if True:
        import pathlib, sys, topicfs.replication
        engine = topicfs.replication.open_engine(pathlib.Path(sys.argv[1]))
        print(*sys.modules)
    """
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    late = ("coordination.shares.groups", "replication.scrub.scrubber", "storage.duties.log_cleaner")
    assert set() == {f"topicfs.{name}" for name in late} & set(ran.stdout.split())


def test_a_scrubber_made_after_the_close_does_not_run(tmp_path: Path):
    """A duty that is still running when the engine closes cannot begin a scrub."""
    with closing(open_engine(tmp_path / "data")) as engine:
        pass
    assert engine.scrubber._stopping.is_set()


def test_settings_of_queues_are_in_each_directory(tmp_path: Path):
    """A queue has the same settings in whatever order the directories are named."""
    a, b = tmp_path / "a", tmp_path / "b"
    with closing(open_engine([a, b])) as engine:
        engine.share_groups.create("billing")
        engine.share_groups.group("billing").alter({"share.delivery.count.limit": "3"})
    with closing(open_engine([b, a])) as engine:
        group = engine.share_groups.group("billing")
        assert 3 == group.settings.share_delivery_count_limit
        group.alter({"share.delivery.count.limit": "4"})
    with closing(open_engine([a, b])) as engine:
        assert 4 == engine.share_groups.group("billing").settings.share_delivery_count_limit
