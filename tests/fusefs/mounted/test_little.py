"""A daemon with little memory or few descriptors, and batches that decompress to an enormous size."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.engines import append_lines
from tests.doubles.hostile import sealed
from tests.fusefs.mounted.conftest import TOPICFS, Mount, shell
from topicfs.replication import open_engine
from topicfs.storage.codec.headers import Codec

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

MIB = 1 << 20
FORMS = [
    "log",
    "log.kv",
    "log.json",
    "log.avro.json",
    "1",
    "1.kv",
    "1.json",
    "1.batch",
    "0-",
    "latest",
    "../log",
]
MAX_REQUEST_MEMORY_BYTES = 300 * MIB
"""The limit that docs/mount.md states in "What a mount takes at most"."""


@pytest.fixture
def bombs(unmounted: Mount) -> Mount:
    """A mount with one topic per codec, each with a record and a batch of a few KB that inflates to 300 MiB."""
    engine = open_engine(unmounted.data)
    codecs = [codec for codec in Codec if codec is not Codec.NONE]
    for codec in codecs:
        engine.create_topic(codec.name)
        append_lines(engine.partition(codec.name, 0), "first\n")
    engine.close()
    for codec in codecs:
        batch = bytearray(sealed(bytes(300 * MIB), codec=codec))
        batch[:8] = (1).to_bytes(8, "big")
        with (unmounted.data / f"{codec.name}-0" / f"{0:020d}.log").open("ab") as log:
            log.write(batch)
    (unmounted.data / ".kafka_cleanshutdown").unlink()
    return unmounted.start()


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


def test_a_decompression_bomb_costs_no_more_than_any_request(bombs: Mount) -> None:
    """Reading a batch that inflates to 300 MiB gives EFBIG and needs only the memory of one request.

    Other records of the topic can be read.
    """
    before = peak_bytes(bombs.pid)
    for codec in Codec:
        if codec is Codec.NONE:
            continue
        for form in FORMS:
            read = bombs.bash(f"cat {codec.name}/0/{form} | head -c 6; exit ${{PIPESTATUS[0]}}")
            assert "File too large" in read.stderr, (codec, form)
        assert "first\n" == bombs.bash(f"cat {codec.name}/0/0").stdout + "\n"
        assert "" == bombs.bash(f"cat {codec.name}/0/log.batch > /dev/null").stderr
    assert peak_bytes(bombs.pid) - before < MAX_REQUEST_MEMORY_BYTES


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A file that moves each process whose ID is written to it into a control group with 100 MB of memory."""
    old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    name = f"topicfs-{uuid.uuid4()}"
    group, limit = (old / name, "memory.limit_in_bytes") if old.is_dir() else (new / name, "memory.max")
    try:
        group.mkdir()
        (group / limit).write_text(str(100 * MIB))
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    yield group / "cgroup.procs"
    group.rmdir()


def run_and_check(script: str, folder: Path, *, partitions: int, **environment: str) -> None:
    """Run a shell script that mounts `mnt`, and then check the data directory."""
    (folder / "mnt").mkdir()
    done = shell("bash", script, folder, topicfs=TOPICFS, **environment)
    subprocess.run(["umount", "-l", folder / "mnt"], capture_output=True, check=False)
    assert 0 == done.returncode, done.stderr
    assert done.stderr.startswith(f"no findings in {partitions} partitions")


@pytest.mark.root
def test_a_daemon_works_in_100_mb(tmp_path: Path, little_memory: Path) -> None:
    """A daemon in 100 MB of memory serves a million lines, eight readers and compressed records of the default size."""
    script = """
        set -eu
        sh -c 'echo $$ > "$procs"; exec "$topicfs" mount --log-file log data mnt'
        mkdir mnt/plain mnt/compressed
        echo compression.type=zstd > mnt/compressed/config
        seq 1000000 > lines
        cat lines >> mnt/plain/0/log
        cmp lines mnt/plain/0/log
        (head -c 900000 /dev/zero | tr '\\0' x; echo) > large
        for _ in 1 2 3 4 5 6 7 8; do cat large >> mnt/compressed/0/log; done
        readers=
        for _ in 1 2 3 4; do
            cat mnt/plain/0/log.json > /dev/null & readers="$readers $!"
            cat mnt/compressed/0/log.json > /dev/null & readers="$readers $!"
        done
        for reader in $readers; do wait $reader; done
        "$topicfs" umount mnt
        "$topicfs" check data
    """
    run_and_check(script, tmp_path, partitions=2, procs=str(little_memory))


def test_64_descriptors_are_enough_for_200_partitions(tmp_path: Path) -> None:
    """A daemon with 64 descriptors serves 200 partitions and 100 open files."""
    script = """
        set -eu
        (ulimit -n 64; "$topicfs" mount --log-file log data mnt)
        mkdir mnt/many mnt/many/199
        for number in $(seq 0 199); do echo "line $number" >> mnt/many/$number/log; done
        exec 9> /dev/null
        for number in $(seq 0 99); do tail --follow mnt/many/$number/log >&9 & readers="${readers-} $!"; done
        for number in $(seq 0 199); do cat mnt/many/$number/log; done > read
        for number in $(seq 0 199); do echo "line $number"; done | cmp - read
        kill $readers
        wait $readers || true
        "$topicfs" umount mnt
        "$topicfs" check data
    """
    run_and_check(script, tmp_path, partitions=200)
