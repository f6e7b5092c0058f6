"""Tests of samples of a mount's `@metrics`."""

from __future__ import annotations

from pathlib import Path

import pytest

from topicfs.top.mount_source import MountSource


@pytest.mark.parametrize("name", ["billing", "a\rb", "a\\nb", 'a"}', "ä # {"])
def test_a_group_is_known_whatever_its_name(tmp_path: Path, name: str):
    """The name of a group can be any UTF-8 text, even with carriage returns."""
    label = name.replace("\\", "\\\\").replace('"', '\\"')
    text = (
        f'topicfs_topic_partitions{{topic="t"}} 1\ntopicfs_group_lag_records{{group="{label}",topic="t"}} 5\n'
    )
    (tmp_path / "@metrics").write_bytes(text.encode())
    assert {name: 5} == MountSource(tmp_path).sample().topics["t"].lags
