"""Records whose fields are at both ends of their ranges, at a real mount."""

from __future__ import annotations

import pytest

from storage.model import LATEST_TIMESTAMP
from tests.doubles.ends_of_records import MICROSECONDS, write_logs
from tests.fusefs.mounted.conftest import Mount

pytestmark = pytest.mark.fuse


def test_programs_list_read_and_append_to_any_log(unmounted: Mount):
    """`ls -lR`, `cat` of every listed file and `>>` fail for no topic, whatever its records say."""
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
    """A producer that sends microseconds makes neither the size, nor the status, nor the next append an error."""
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
