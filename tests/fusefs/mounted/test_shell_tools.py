"""Ordinary programs on a real mount: cat, tail, dd, cp, grep, tar, rsync, and programs that seek."""

from __future__ import annotations

import mmap
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from testing.processes import started
from tests.doubles.forks import COMMAND, FORKS
from tests.doubles.waiting import wait_until
from tests.fusefs.mounted.conftest import Mount, shell

pytestmark = pytest.mark.fuse

LINES = 20_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text file of some MB, with empty lines and lines of various lengths."""
    path = tmp_path_factory.mktemp("source") / "text"
    path.write_text(
        "".join(f"line {n} {'x' * (n % 17 * (n % 23))}\n" if n % 11 else "\n" for n in range(LINES))
    )
    return path


@pytest.fixture(scope="module")
def text(shared_mount: Mount, source: Path) -> Path:
    """A topic that has the lines of `source`.

    The log was read once, because over a cluster the size of an unread log is unknown.
    """
    topic = shared_mount.path / "text"
    topic.mkdir()
    assert 0 == shared_mount.bash('cat "$SOURCE" >> text/0/log', SOURCE=source).returncode
    assert (topic / "0" / "log").read_bytes() == source.read_bytes()
    return topic / "0"


def run(script: str, cwd: Path, **names: object) -> str:
    """Return the output of a script, which must succeed and print no errors."""
    result = shell("bash", f"set -o pipefail; {script}", cwd, **names)
    assert (0, "") == (result.returncode, result.stderr), result
    return result.stdout


def test_a_log_has_the_bytes_of_the_appended_file(text: Path, source: Path):
    """A log has the same bytes and the same size as the file that was appended."""
    assert run('cmp log "$SOURCE"; stat -c %s log', text, SOURCE=source) == f"{source.stat().st_size}\n"


@pytest.mark.parametrize(
    "command",
    [
        "wc -l < FILE",
        "wc -c FILE | cut -d' ' -f1",
        "tail -n 5 FILE",
        "tail -c 1234 FILE",
        "tail -n +19990 FILE",
        "head -c 5000 FILE | md5sum",
        "head -n 7 FILE",
        "grep -c 'line 1' FILE",
        "grep -n 'line 4321 ' FILE",
        "dd if=FILE bs=1000 skip=123 count=2 status=none | md5sum",
        "dd if=FILE bs=7 skip=10001 count=3 status=none",
        "dd if=FILE iflag=direct bs=4096 skip=3 count=2 status=none | md5sum",
        "sed -n '4000,4003p' FILE",
        "sort FILE | md5sum",
        "tac FILE | md5sum",
        "split -n l/3/5 FILE | md5sum",
        "awk 'END {print NR}' FILE",
        'python3 -c \'import sys; f = open("FILE", "rb"); f.seek(-100, 2); sys.stdout.buffer.write(f.read())\'',
        "python3 -c 'f = open(\"FILE\"); print(sum(1 for line in f))'",
        'python3 -c \'import mmap; f = open("FILE"); print(mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ).find(b"line 99 "))\'',
        "less FILE | md5sum",
        "md5sum < FILE",
    ],
)
def test_tools_say_the_same_of_the_log_as_of_the_file(text: Path, source: Path, command: str):
    """Each tool prints the same for the log as for the file, whether it reads from the front or the end, or seeks."""
    assert run(command.replace("FILE", "log"), text) == run(
        command.replace("FILE", source.name), source.parent
    )


def test_a_line_is_a_record(text: Path, source: Path):
    """Line 1001 of the file is the record at offset 1000, and a range of records is a range of lines."""
    lines = source.read_text().splitlines(keepends=True)

    assert run("cat 1000", text) == lines[1000].rstrip("\n")
    assert run("cat 1000-1002", text) == "".join(lines[1000:1003])
    assert run("cat -- -3", text) == "".join(lines[-3:])
    assert run(f"cat {LINES - 2}-", text) == "".join(lines[-2:])
    assert run('jq -r ".payload" 1000.json', text) == lines[1000]
    assert run("readlink earliest latest", text) == f"0\n{LINES - 1}\n"


def test_kcats_fields_in_json_lines(text: Path):
    """A jq script that is written for `kcat -J` works on the JSON lines."""
    assert '["text",0,5,"create",null]\n' == run(
        "jq -c '[.topic, .partition, .offset, .tstype, .key]' 5.json", text
    )
    assert run("jq -s 'map(.offset) | add' log.json", text) == f"{LINES * (LINES - 1) // 2}\n"


def test_cp_copies_a_log_out_and_into_another_topic(text: Path, source: Path, topic: Path, tmp_path: Path):
    """`cp` copies a log to a file, and into another topic."""
    run('cp log "$TO/plain"; cp log "$TOPIC/0/log"', text, TO=tmp_path, TOPIC=topic)

    assert (tmp_path / "plain").read_bytes() == source.read_bytes()
    assert (topic / "0" / "log").read_bytes() == source.read_bytes()


def test_copying_a_topic_into_another_brings_each_record_once(mount: Mount):
    """`cp -r` of a topic stores each record once, because `log` accepts O_TRUNC but `log.kv` and `log.json` do not."""
    mount.bash("mkdir a b; seq 100 >> a/0/log; cp -r a/. b")

    assert (mount.path / "b" / "0" / "log").read_text() == "".join(f"{n}\n" for n in range(1, 101))


def test_recursive_tools_end_and_agree(mount: Mount, tmp_path: Path):
    """grep -r, cp -r, tar, rsync, du and find over a mount come to an end, and read the content of the logs."""
    mount.bash("mkdir a b; mkdir a/2; seq 5000 >> a/0/log; seq 10 >> a/2/log; echo x >> b/0/log")
    expected = {name: (mount.path / name).read_bytes() for name in ("a/0/log", "a/2/log.json", "b/0/log.kv")}

    found = mount.bash(
        "grep -rl --include=log '^4999$' .; find . -name log -perm -444 | sort; du -s . > /dev/null"
    )
    mount.bash(
        'cp -r . "$TO/cp"; rsync -a . "$TO/rsync"; tar -cf "$TO/tar" --exclude=./a/log* --exclude=./b/log* .',
        TO=tmp_path,
    )
    with tarfile.open(tmp_path / "tar") as archive:
        for name, content in expected.items():
            member = archive.extractfile(f"./{name}")
            assert member is not None
            assert member.read() == content

    assert "./a/0/log\n./a/0/log\n./a/1/log\n./a/2/log\n./b/0/log\n" == found.stdout
    for copy in ("cp", "rsync"):
        assert {name: (tmp_path / copy / name).read_bytes() for name in expected} == expected


def test_tar_takes_a_whole_mount_as_it_is(mount: Mount, tmp_path: Path):
    """tar archives a mount completely, even with --sparse, because st_blocks indicates no holes."""
    mount.bash("mkdir a; seq 100000 >> a/0/log")

    mount.bash('tar -S -cf "$TO" a/0', TO=tmp_path / "archive")
    run("tar -xf archive", tmp_path)

    assert (tmp_path / "a" / "0" / "log").read_bytes() == (mount.path / "a" / "0" / "log").read_bytes()


def test_programs_that_use_sizes_read_a_whole_topic(mount: Mount, tmp_path: Path):
    """tar, rsync, wc and tail get the same bytes of a topic's log as cat."""
    mount.bash(
        "mkdir a; mkdir a/2; seq 3000 >> a/log.json; seq -f 'k%g\tv%g' 3000 >> a/log.kv; echo x >> a/1/log"
    )
    names = ("log", "log.kv", "log.json")
    expected = {name: (mount.path / "a" / name).read_bytes() for name in names}

    run(
        'tar -cf "$TO/tar" a/log a/log.kv a/log.json; rsync -a a/log a/log.kv a/log.json "$TO/rsync/"',
        mount.path,
        TO=tmp_path,
    )
    run("mkdir out; tar -xf tar -C out", tmp_path)

    for name, content in expected.items():
        assert (
            content
            == (tmp_path / "out" / "a" / name).read_bytes()
            == (tmp_path / "rsync" / name).read_bytes()
        )
        assert f"{len(content)}\n" * 2 == run(f"stat -c %s a/{name}; wc -c < a/{name}", mount.path)
        assert content.splitlines()[-1].decode() == run(f"tail -n 1 a/{name}", mount.path)[:-1]


def test_tail_f_follows_a_whole_topic(mount: Mount):
    """`tail -f` of a topic's log shows each line once, whatever partition the line is in."""
    mount.bash("mkdir a a/2; echo before >> a/0/log")

    with started(
        ["tail", "-s", "0.05", "-n", "+1", "-f", "a/log"], cwd=mount.path, stdout=subprocess.PIPE
    ) as tail:
        assert tail.stdout is not None
        for number, line in enumerate((b"before\n", b"one\n", b"two\n", b"three\n")):
            assert line == tail.stdout.readline()
            mount.bash(f"echo {['one', 'two', 'three', 'last'][number]} >> a/{number % 3}/log")


def test_segments_are_the_real_files(mount: Mount):
    """The files in `segments` have the same bytes as the files on disk."""
    mount.bash("mkdir a; seq 100000 >> a/0/log")

    for path in (mount.path / "a" / "0" / "segments").iterdir():
        assert path.read_bytes() == (mount.data / "a-0" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("option", "pattern"),
    [
        ("--print-data-log", "*.log"),
        ("--verify-index-only", "*.index"),
    ],
)
def test_segments_are_dumped_through_the_mount(mount: Mount, option: str, pattern: str):
    """`topicfs dump`, which maps files, prints the same for a segment in the mount as in the data directory."""
    mount.bash("mkdir a; seq 100000 >> a/0/log")
    through, real = mount.path / "a" / "0" / "segments", mount.data / "a-0"
    dumped = FORKS.run(COMMAND, "dump", option, *map(str, sorted(through.glob(pattern))))
    expected = FORKS.run(COMMAND, "dump", option, *map(str, sorted(real.glob(pattern))))
    assert (0, b"") == (dumped.status, dumped.errors)
    assert expected.output == dumped.output.replace(bytes(through), bytes(real))
    assert dumped.output


def test_a_python_program_appends_and_seeks(topic: Path):
    """Python's modes a, w, a+ and unbuffered writes work on a log."""
    log = topic / "0" / "log"
    with log.open("a") as file:
        file.write("a\nb\n")
    with log.open("w") as file:
        file.write("c\n")
    with log.open("a+") as file:
        file.write("d\n")
        file.seek(2)
        assert "b\nc\nd\n" == file.read()
    with log.open("ab", buffering=0) as file:
        file.write(b"e")
        file.write(b"f\n")

    assert "a\nb\nc\nd\nef\n" == log.read_text()


def test_dd_appends_in_blocks_of_any_size(topic: Path):
    """Lines are stored whole, whatever the block size of the writes is."""
    run("seq 5000 | dd of=log bs=313 status=none", topic / "0")

    assert (topic / "0" / "log").read_text() == "".join(f"{n}\n" for n in range(1, 5001))


def test_kv_and_json_lines_round_trip(topic: Path):
    """Lines with keys and headers are read back unchanged."""
    lines = run(
        r"""printf 'k1\tv1\nno key\n\\N\tv2\nk\\t\t\\N\n' >> log.kv
        echo '{"key":"j","payload":"p","headers":["h","1","h",null],"ts":1700000000123}' >> log.json
        cat log.kv; cat 4.json; getfattr --only-values -n user.kafka.headers 4""",
        topic / "0",
    )

    kept = "k1\tv1\n\\N\tno key\n\\N\tv2\nk\\t\t\\N\nj\tp\n"
    record = '"offset":4,"tstype":"create","ts":1700000000123,"headers":["h","1","h",null],"key":"j","payload":"p"}\n'
    assert lines.startswith(kept)
    assert record in lines
    assert lines.endswith('["h","1","h",null]')


def test_stat_of_a_record_tells_its_time_and_size(topic: Path):
    """stat(2) of a record's file shows the size of the record and, as mtime, its timestamp."""
    assert "4 1700000000.123\n" == run(
        """echo '{"payload":"four","ts":1700000000123}' >> log.json; stat -c '%s %.3Y' 0""", topic / "0"
    )


def test_times_select_records(topic: Path):
    """Records can be selected by milliseconds and by calendar time."""
    run(
        """for t in 1 2 3; do echo "{\\"payload\\":\\"$t\\",\\"ts\\":170000000${t}000}" >> log.json; done""",
        topic / "0",
    )

    assert ("2\n2\n2\n3\n") == run(
        "cat @1700000002000; echo; cat @1700000001500-@1700000003000; cat @2023-11-14T22:13:22Z-", topic / "0"
    )


def test_a_closed_range_can_be_mapped_shared(text: Path, source: Path):
    """A closed range can be mapped with MAP_SHARED, because it never changes."""
    path = text / f"0-{LINES - 1}"
    assert path.read_bytes() == source.read_bytes()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == source.read_bytes()


@pytest.mark.parametrize("writer", ["echo x > log", "ls -l . > /dev/null; echo x >> log"])
def test_readers_never_see_the_end_too_early(topic: Path, writer: str):
    """Readers read to the end while another program opens the file with O_TRUNC (`>`) or lists the directory."""
    log = topic / "0" / "log"
    log.write_bytes(b"".join(b"%d\n" % n for n in range(100_000)))
    size = len(log.read_bytes())
    with started(["bash", "-c", f"while :; do {writer}; done"], cwd=log.parent):
        wait_until(lambda: len(log.read_bytes()) > size, "the writer appends")
        seen = [len(log.read_bytes()) for _ in range(200)]

    assert seen[0] > size
    assert seen == sorted(seen)


def test_df_shows_the_disk(shared_mount: Mount):
    """`df` shows the size of the data directory's disk."""

    def shown(path: Path) -> tuple[int, int]:
        found = os.statvfs(path)
        return found.f_blocks, found.f_frsize

    # On some file systems the total size changes when other programs write.
    wait_until(
        lambda: shown(shared_mount.path) == shown(shared_mount.data),
        "the mount and the disk have the same size",
    )


def test_getfattr_dumps_a_records_metadata(topic: Path):
    """The extended attributes `user.kafka.*` contain the metadata of a record."""
    shown = run(r"printf 'k\tv\n' >> log.kv; getfattr -d 0", topic / "0")

    assert 'user.kafka.key="k"' in shown
    assert 'user.kafka.timestamp_type="CreateTime"' in shown
    assert 'user.kafka.batch="base_offset 0 position 0 segment 00000000000000000000.log"' in shown


def test_two_mounted_views_of_one_file_see_each_append(topic: Path):
    """A reader that has a file open sees each append immediately, despite the kernel's cache."""
    log = topic / "0" / "log"
    with log.open("rb") as reader:
        seen = b""
        for number in range(300):
            with log.open("ab", buffering=0) as writer:
                writer.write(b"%d\n" % number)
            assert os.fstat(reader.fileno()).st_size == len(seen) + len(b"%d\n" % number)
            seen += reader.read()

    assert seen == b"".join(b"%d\n" % number for number in range(300))


def test_subprocess_pipes_work(topic: Path):
    """`tee -a` appends data from a pipe."""
    subprocess.run(["tee", "-a", topic / "0" / "log"], input=b"a\nb\n", check=True, stdout=subprocess.DEVNULL)

    assert "a\nb\n" == (topic / "0" / "log").read_text()


def test_batches_are_copied_by_cat_alone_and_end(topic: Path, shared_mount: Mount, tmp_path: Path):
    """Batches copied by cat, cp or dd have the same records as the original batches."""
    copy = shared_mount.path / f"{topic.name}-copy"
    copy.mkdir()
    shared_mount.bash("seq 100000 >> $T/0/log; printf 'k\\tv\\n' >> $T/0/log.kv", T=topic.name)
    script = "cat $T/0/log.batch >> $T-copy/0/log.batch && cp $T/0/log.batch $F && dd if=$F bs=1000 status=none >> $T-copy/0/log.batch"
    result = shared_mount.bash(script, T=topic.name, F=tmp_path / "saved")

    assert (0, "") == (result.returncode, result.stderr)
    assert (copy / "0" / "log.kv").read_bytes() == (topic / "0" / "log.kv").read_bytes() * 2
    assert (tmp_path / "saved").stat().st_size == (topic / "0" / "log.batch").stat().st_size
