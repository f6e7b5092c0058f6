"""The engine over logs of which there is one copy."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from topicfs.replication import open_engine


def test_a_reader_has_groups_and_queues_too(tmp_path: Path):
    """They are made when they are asked for, the same ones each time."""
    with closing(open_engine(tmp_path / "data")) as engine:
        engine.groups.create("billing")
    with closing(open_engine(tmp_path / "data", read_only=True)) as reader:
        assert ["billing"] == list(reader.groups.listed())
        assert {} == reader.share_groups.groups()
        assert reader.groups is reader.groups
