"""Records whose fields have extreme values, on a real mount."""

from __future__ import annotations

import pytest

from tests.doubles.ends_of_records import MICROSECONDS, one, write_logs
from tests.fusefs.mounted.conftest import Mount
from topicfs.storage.disk.names import SegmentFileKind, segment_file
from topicfs.storage.model import LATEST_TIMESTAMP, Offset

pytestmark = pytest.mark.fuse


def test_programs_list_read_and_append_to_any_log(unmounted: Mount):
    """`ls -lR`, `cat` of all files and `>>` work for topics whose records have any values."""
    names = write_logs(unmounted.data)
    mount = unmounted.start()
    for name in names:
        script = 'set -e; ls -lR "$NAME"; find "$NAME" -type f -exec cat {} + > /dev/null'
        found = mount.bash(script, NAME=name)
        assert (0, "") == (found.returncode, found.stderr), name
    mount.bash("for name in */; do [ $name = offset-last/ ] || echo more >> $name/0/log; done")
    for name in names:
        expected = "v\n" if name == "offset-last" else "v\nmore\n"
        assert (mount.path / name / "0/log").read_text().endswith(expected), name


@pytest.mark.parametrize("timestamp", [MICROSECONDS, LATEST_TIMESTAMP])
def test_a_record_of_the_far_future_leaves_its_partition_usable(mount: Mount, timestamp: int):
    """After a record whose timestamp is far in the future, size, status and appends work."""
    script = """
        set -e
        mkdir t
        echo message.timestamp.after.max.ms=9223372036854775807 > t/config
        echo '{"payload":"x","ts":'$TIME'}' >> t/0/log.json
        echo more >> t/0/log
        stat -c %Y t/0/log
        cat t/0/log
        grep last_timestamp t/0/status
    """
    found = mount.bash(script, TIME=timestamp)
    assert (0, "") == (found.returncode, found.stderr)
    assert f"9223372036\nx\nmore\nlast_timestamp {timestamp}\n" == found.stdout


def test_a_read_only_mount_says_which_records_it_does_not_show(unmounted: Mount):
    """If offsets of a log are too far apart for one segment, a read-only mount reports which records it hides.

    A writable mount splits such a log.
    """
    partition = unmounted.data / "t-0"
    partition.mkdir(parents=True)
    log = partition / segment_file(Offset(0), SegmentFileKind.LOG)
    log.write_bytes(b"".join(map(one, (0, 1, 2**31 + 5, 2**31 + 6, 2**32 + 9))))
    mount = unmounted.start(read_only=True)
    assert "v\nv\n" == (mount.path / "t/0/log").read_text()
    fault = f"{log}: position 140: offset {2**31 + 5} is over 2^31-1 above the base offset"
    said = f"{fault}; nothing from there on is shown"
    assert f"hidden {said}\n" in (mount.path / "t/0/status").read_text()
    assert f"warning t-0: {said}\n" in mount.status
    mount.stop()
    mount = unmounted.start(read_only=False)
    assert "v\n" * 5 == (mount.path / "t/0/log").read_text()
    assert "hidden" not in (mount.path / "t/0/status").read_text()
