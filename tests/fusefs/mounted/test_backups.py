"""Tools that walk over a mount end without errors and copy each record, and their copies can be restored."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.fusefs.mounted.conftest import Mount, shell
from topicfs.storage.config.broker import KEEP_FOREVER

pytestmark = pytest.mark.fuse

WALKERS = {
    "cp -a": "cp -a . $COPY",
    "cp -r": "cp -r . $COPY",
    "rsync -a": "rsync -a ./ $COPY/",
    "rsync -aX": "rsync -aX ./ $COPY/",
    "tar -S": "set -o pipefail; mkdir $COPY; tar -S -c . | tar x -C $COPY",
    "python's tarfile": "set -o pipefail; mkdir $COPY; find . | python3 -c 'import sys, tarfile; out = tarfile.open(sys.argv[1], \"w\"); [out.add(line[:-1], recursive=False) for line in sys.stdin]; out.close()' $COPY.tar; tar xf $COPY.tar -C $COPY",
}
"""Scripts that copy the whole mount."""

READERS = {
    "grep -r": "grep -ra orange . | wc -l",
    "grep -R": "grep -Ra orange . | wc -l",
    "find": "find . -type f -exec cat {} + | wc -c",
    "du": "du -a .",
    "ls -lR": "ls -lRL orders; ls -lR",
    "md5sum": "find . -type f -print0 | xargs -0 md5sum",
    "wc": "find . -type f -print0 | xargs -0 wc",
    "diff -r": "diff -rq --no-dereference orders orders",
    "getfattr -R": "getfattr -R -d -m - .",
}
"""Scripts that read the whole mount."""


@pytest.fixture
def mount(unmounted: Mount) -> Mount:
    """A mount with small segment indexes, because backups copy these files completely."""
    overrides = {**KEEP_FOREVER, "segment.index.bytes": str(2**16)}
    return unmounted.start(engine={"creation_overrides": overrides})


@pytest.fixture
def filled(mount: Mount) -> Mount:
    """A mount with topics of several partitions, one of them empty; the records have keys, headers and times."""
    result = mount.bash(
        "mkdir orders prices empty && mkdir orders/3; seq 500 >> orders/log; "
        "printf 'k%d\\tapple\\n' $(seq 100) >> orders/log.kv; "
        """printf '{"payload":"orange","key":"k","ts":1700000000%03d,"headers":["h","v"]}\\n' $(seq 100 199) >> orders/1/log.json; """
        "echo 12 >> prices/log; echo retention.ms=-1 >> prices/config"
    )
    assert (0, "") == (result.returncode, result.stderr)
    return mount


def partition_files(root: Path, name: str) -> dict[str, bytes]:
    """Return the content of the file `name` of all partitions, by path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.glob(f"*/[0-9]*/{name}"))}


@pytest.mark.parametrize("walker", WALKERS)
def test_a_copy_of_the_whole_mount_ends_and_is_whole(filled: Mount, tmp_path: Path, walker: str):
    """The copy ends without an error, and contains each partition's files byte for byte."""
    copy = tmp_path / "copy"

    result = filled.bash(WALKERS[walker], COPY=copy)

    assert (0, "") == (result.returncode, result.stderr)
    for name in ("log", "log.kv", "log.json", "log.batch", "segments/*"):
        expected = partition_files(filled.path, name)
        assert expected
        assert expected == partition_files(copy, name)
    assert ["@groups", "@queues", "@status", "empty", "orders", "prices"] == sorted(os.listdir(copy))
    assert ["0", "1", "2", "3", "config", "status"] == sorted(os.listdir(copy / "orders"))


@pytest.mark.parametrize("reader", READERS)
def test_whatever_reads_all_it_finds_ends_without_an_error(filled: Mount, reader: str):
    """Tools that read all files end without an error."""
    result = filled.bash(f"set -o pipefail; {READERS[reader]}")

    assert (0, "") == (result.returncode, result.stderr)


def test_nothing_that_is_listed_changes_while_it_is_read(filled: Mount):
    """The size, inode and ctime of each listed file are the same before and after a read, which returns this size."""
    for directory, _directories, names in os.walk(filled.path):
        for path in (Path(directory) / name for name in names):
            before = path.lstat()
            if not stat.S_ISREG(before.st_mode):
                continue
            os.listxattr(path)
            with path.open("rb") as file:
                content = file.read()
                after = os.fstat(file.fileno())
            seen = [(len(content) if it is None else it.st_size) for it in (None, before, after)]
            assert 1 == len(set(seen)), path
            assert (before.st_ino, before.st_ctime_ns) == (after.st_ino, after.st_ctime_ns), path


def test_a_second_rsync_copies_nothing(filled: Mount, tmp_path: Path):
    """A second rsync copies nothing except `@status`."""
    filled.bash("rsync -a ./ $COPY/", COPY=tmp_path / "copy")

    result = filled.bash("rsync -a --itemize-changes ./ $COPY/", COPY=tmp_path / "copy")

    changed = [line.split()[-1] for line in result.stdout.splitlines() if line.startswith(">")]
    assert set(changed) <= {"@status"}


@pytest.mark.parametrize("form", ["log.json", "log.batch"])
def test_a_backup_is_restored_by_appending_it(filled: Mount, tmp_path: Path, form: str):
    """Appending the copied lines or batches restores each record with its key, time and headers."""
    copy = tmp_path / "copy"
    filled.bash("cp -a orders $COPY", COPY=copy)
    before = partition_files(filled.path, "log.json")

    result = filled.bash(
        "mkdir restored restored/3 && for n in 0 1 2 3; do cat $COPY/$n/$FORM >> restored/$n/$FORM || exit 1; done",
        COPY=copy,
        FORM=form,
    )

    assert (0, "") == (result.returncode, result.stderr)
    for number in range(4):
        restored = (filled.path / f"restored/{number}/log.json").read_bytes()
        expected = before[f"orders/{number}/log.json"].replace(b'"topic":"orders"', b'"topic":"restored"')
        assert expected == restored


def test_a_backup_is_restored_from_its_segments(filled: Mount, tmp_path: Path):
    """The copied segments, used as a data directory, restore the records at their offsets."""
    copy = tmp_path / "copy"
    filled.bash("cp -a orders $COPY", COPY=copy)
    before = partition_files(filled.path, "log.batch")
    filled.stop()
    shutil.rmtree(filled.data)
    filled.data.mkdir()
    for number in range(4):
        shutil.copytree(copy / str(number) / "segments", filled.data / f"orders-{number}")
    subprocess.run(["chmod", "-R", "u+w", filled.data], check=True)

    filled.start()

    expected = {path: content for path, content in before.items() if path.startswith("orders/")}
    assert expected == partition_files(filled.path, "log.batch")


TOOLS = {
    "cat": "cat FILE",
    "wc": "wc -l < FILE; wc -c < FILE",
    "grep": "grep -c 7 FILE",
    "head": "head -n 3 FILE",
    "head, twice": "{ head -n 1; head -n 2; } < FILE",
    "tail": "tail -n 3 FILE",
    "tail -c": "tail -c 20 FILE",
    "tail -n +": "tail -n +295 FILE",
    "less": "less FILE",
    "tac": "tac FILE",
    "sort": "sort FILE",
    "sed": "sed -n 101p FILE",
    "awk": "awk 'END {print NR}' FILE",
    "dd": "dd if=FILE bs=7 skip=10 count=3 status=none",
    "cp": "cp FILE $COPY && cat $COPY",
    "jq": "jq -R . FILE",
    "split": "split -l 100 FILE $COPY && cat $COPY*",
    "python": "python3 -c 'print(open(\"FILE\").readlines()[250:])'",
    "diff": "diff - FILE < FILE",
    "rsync": "rsync -a FILE $COPY && cat $COPY",
    "stat": "stat -c %s FILE",
    "tar": "tar -cO FILE | tar -xO",
}
"""Scripts that read one file; their output must be the same as for an ordinary file."""


@pytest.fixture
def whole(topic: Path) -> Path:
    """A topic of three partitions with alternating timestamps, whose merged log is `line 0` to `line 299`."""
    (topic / "2").mkdir()
    for number in range(3):
        lines = (b'{"payload":"line %d","ts":%d}\n' % (n, 1000 + n) for n in range(number, 300, 3))
        with (topic / str(number) / "log.json").open("ab") as log:
            log.write(b"".join(lines))
    return topic


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_read_a_topic_as_a_whole(whole: Path, tmp_path: Path, tool: str):
    """Tools read the log of a topic, merged by time, to its end, as they read an ordinary file."""
    (tmp_path / "log").write_text("".join(f"line {n}\n" for n in range(300)))
    script = TOOLS[tool].replace("FILE", "log")

    result = shell("bash", script, whole, COPY=tmp_path / "copy-")

    assert "" == result.stderr
    expected = shell("bash", script, tmp_path, COPY=tmp_path / "other-")
    assert (expected.stdout, expected.returncode) == (result.stdout, result.returncode)


def test_a_topic_by_time(whole: Path):
    """A range of times of a topic can be read in three forms."""
    result = shell(
        "bash", "cat @1295-; cat @1100-@1102.kv; jq .payload @1299-.json; stat -c %s @1295-", whole
    )

    lines = [f"line {n}" for n in range(295, 300)]
    assert result.stdout.splitlines() == [*lines, "\\N\tline 100", "\\N\tline 101", '"line 299"', "1"]
