"""Tests of the command as a whole: help texts, one-line errors and exit statuses."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest

from testing.processes import started
from tests.topicfs.conftest import TOPICFS
from topicfs.examples import Example, ExampleCommand, ExampleGroup
from topicfs.main import COMMANDS, cli
from topicfs.storage.errors import StorageError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LOG_DIRS = ROOT / "tests" / "vectors" / "kafka" / "log-dirs"


def commands(group: click.Group, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command below `group`, with the words that name it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)


EVERY_COMMAND = dict(commands(cli))


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_every_command_explains_itself_by_example(topicfs, words):
    """The --help of each command contains examples."""
    ran = topicfs(*words, "--help")
    assert 0 == ran.status
    command = EVERY_COMMAND[words]
    assert isinstance(command, ExampleCommand | ExampleGroup)
    assert command.examples
    assert all(example.line in ran.text for example in command.examples)


def every_example() -> list[Example]:
    found = [example for command in EVERY_COMMAND.values() for example in command.examples]
    return [
        example for example in found if example.line.startswith("topicfs ") or "| topicfs " in example.line
    ]


@pytest.mark.parametrize("example", every_example(), ids=lambda example: example.line)
def test_every_example_is_a_command_that_parses(example):
    """The command accepts the command line of each example."""
    for part in example.line.split("|"):
        words = shlex.split(re.split(r"\s(2?>|<)", part)[0], comments=True)
        if words[0] != "topicfs":
            continue
        command: click.Command = cli
        words = words[1:]
        while isinstance(command, click.Group):
            step = command.get_command(click.Context(command), words.pop(0))
            assert step is not None
            command = step
        command.make_context("example", list(words), resilient_parsing=False).close()


def test_help_lists_the_commands_in_a_newcomers_order(topicfs):
    """`topicfs --help` lists the commands in the order of COMMANDS; `topicfs` alone prints this help, with status 2."""
    listed = [
        line.split()[0]
        for line in topicfs("--help").text.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    ]
    assert list(COMMANDS) == listed
    assert 2 == topicfs().status


def test_the_version_is_the_distributions(topicfs):
    """The option --version prints the version of the installed distribution."""
    assert "topicfs 0.1.0\n" == topicfs("--version").text


def test_a_traceback_only_when_asked_for(topicfs):
    """A traceback is printed only with --debug or TOPICFS_DEBUG."""
    assert b"Traceback" not in topicfs("cat", "orders/0").errors
    assert b"Traceback" in topicfs("--debug", "cat", "orders/0").errors


def test_an_unknown_command_imports_nothing():
    """An unknown command is refused by the table of commands, without importing a module."""
    assert cli.get_command(click.Context(cli), "absent") is None


def test_a_reader_that_leaves_is_no_error():
    """`topicfs dump … | head -n 1` ends with status 0 and no message."""
    segments = sorted(map(str, (LOG_DIRS / "g-none-0").glob("*.log")))
    command = shlex.join([TOPICFS, "dump", "--print-data-log", *segments * 20])
    pipeline = f"{command} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, check=True)
    assert (f"Dumping {segments[0]}\n0\n".encode(), b"") == (done.stdout, done.stderr)


def test_dump_takes_kafkas_flags_and_plain_files(topicfs):
    """`dump --files A,B` is equivalent to `dump A B`. Findings go to standard error."""
    first, second = (str(LOG_DIRS / "g-none-0" / f"{base:020d}.log") for base in (0, 132))
    by_flag = topicfs("dump", "--files", f"{first},{second}", "--print-data-log")
    assert by_flag == topicfs("dump", "--print-data-log", first, second)
    assert by_flag.text.startswith(
        f"Dumping {first}\nLog starting offset: 0\nbaseOffset: 0 lastOffset: 15 count: 16 "
    )
    assert f"Non-consecutive offsets in {second}\n  -1 is followed by 132\n" == by_flag.errors.decode()


def test_check_tells_each_finding_in_a_line_and_by_its_status(topicfs, tmp_path, monkeypatch):
    """`check` prints each finding on one line with file, position and cause; its status is 1 if there is a finding."""
    data = tmp_path / "broken"
    shutil.copytree(LOG_DIRS / "g-none-0", data / "g-none-0")
    assert (0, b"", b"no findings in 1 partition, 47.5 kB of log\n") == topicfs("check", str(data))
    log = data / "g-none-0" / "00000000000000000132.log"
    broken = bytearray(log.read_bytes())
    broken[700] ^= 1
    log.write_bytes(broken)
    ran = topicfs("check", str(data))
    assert (1, b"1 finding in 1 partition, 47.5 kB of log\n") == (ran.status, ran.errors)
    assert ran.text.startswith(
        "broken/g-none-0/00000000000000000132.log: position 609: checksum is 0xc2c87142, but its bytes have 0x"
    )
    assert 1 == len(ran.text.splitlines())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert topicfs("check", str(data)).text.startswith(f"{log}: position 609: ")


def test_findings_go_down_the_pipe_though_a_bar_is_on_the_screen(tmp_path):
    """While a progress bar is shown on standard error, `check` prints its findings on standard output."""
    shutil.copytree(LOG_DIRS / "g-none-0", tmp_path / "g-none-0")
    (tmp_path / "g-none-0" / "partition.metadata").unlink()
    screen, terminal = os.openpty()
    command = [TOPICFS, "check", str(tmp_path)]
    environment = {**os.environ, "TERM": "xterm"}
    with (
        os.fdopen(screen, "rb", buffering=0) as shows,
        started(command, stdout=subprocess.PIPE, stderr=terminal, env=environment) as check,
    ):
        os.close(terminal)
        shown = b""
        with suppress(OSError):  # EIO means that no process has the terminal open for writing.
            while part := shows.read(4096):
                shown += part
        printed, status = check.stdout.read(), check.wait()
    assert (1, 1) == (status, len(printed.splitlines()))
    assert printed.endswith(b"g-none-0/partition.metadata: missing\n")
    assert b"1 finding in 1 partition" in shown
    assert b"partition.metadata" not in shown


def test_explain_tells_the_steps_with_the_numbers_of_the_files(topicfs):
    """`explain` prints the segments, index slots and batches, and the record, as the numbers of a broker's files."""
    assert (
        "g-none/0/368: the record at offset 368. g-none-0 holds offsets 0 to 399 in 3 segments, 47,463 bytes.\n"
        "\n"
        "offset 368\n"
        "  1 segment  the greatest base offset not above 368:\n"
        "             0  132  [268]\n"
        "  2 index    00000000000000000268.index, 5 entries: binary search for 368\n"
        "             slot 0: offset 298 → position 2971  below\n"
        "             slot 2: offset 344 → position 8178  below\n"
        "             slot 3: offset 367 → position 11145  below\n"
        "             slot 4: offset 390 → position 13912  above\n"
        "             offset 367 → position 11145, the greatest not above it\n"
        "  3 scan     00000000000000000268.log, forward from position 11145\n"
        "             batch at 11145: offsets 361 to 367, passed\n"
        "             batch at 11868: offsets 368 to 387, 2,044 bytes\n"
        "  4 record   offset 368, record 1 of the 20 records in its batch\n"
        "             CreateTime 1767225966800 (2026-01-01T00:06:06.800Z), leader epoch 0\n"
        "             key 'key-18' (6 bytes), value "
        "'value-368-abcdefghijabcdefghijabcdefghijabcdefghijabcdefghij'… (170 bytes)\n"
    ) == topicfs("explain", "--data", str(LOG_DIRS), "g-none/0/368").text


def test_explain_by_time_goes_through_both_indexes(topicfs):
    """`explain` of a time skips earlier segments, and then searches the time index, the offset index and the log."""
    steps = explained(topicfs, "g-none/0/@1767225943700")["lookups"][0]["steps"]
    kinds = ["segment_passed", "segment_passed", "segment_taken", "index_searched", "index_searched"]
    assert [*kinds, "scan_began", "batch_found", "record_found"] == [step["step"] for step in steps]
    assert ["00000000000000000268.timeindex", "00000000000000000268.index"] == [
        step["file"] for step in steps[3:5]
    ]
    assert {"step": "record_found", "offset": 344, "timestamp": 1767225943700} == steps[-1]


def explained(topicfs, place: str) -> dict:
    return json.loads(topicfs("explain", "--json", "--data", str(LOG_DIRS), place).output)


@pytest.mark.parametrize(
    ("name", "meaning", "targets"),
    [
        ("42-99", "offsets 42 to 99", ["offset 42", "offset 99"]),
        ("390-", "offsets 390 and on", ["offset 390", "offset 399"]),
        ("-1", "offsets 399 to 399", ["offset 399"]),
        (
            "@1767225600700-@1767225602100",
            "offsets 1 to 2",
            ["timestamp 1767225600700", "timestamp 1767225602100"],
        ),
        ("400-", "offsets 400 and on", []),
    ],
)
def test_explain_of_a_range_looks_up_both_its_ends(topicfs, name, meaning, targets):
    """`explain` of a range prints the meaning of the range, and looks up the range's first and last record."""
    explanation = explained(topicfs, f"g-none/0/{name}")
    assert (meaning, targets) == (
        explanation["meaning"],
        [lookup["target"] for lookup in explanation["lookups"]],
    )


@pytest.mark.parametrize(
    ("place", "message"),
    [("g-none/0/log", "log: not a selector"), ("g-none/0/@9999-12-31", "no record at or after")],
)
def test_explain_of_a_missing_record_is_one_line(topicfs, place, message):
    """`explain` of a missing record prints one line with the reason; its status is 1."""
    ran = topicfs("explain", "--data", str(LOG_DIRS), place)
    assert (1, 1) == (ran.status, len(ran.errors.splitlines()))
    assert message in ran.errors.decode()


def test_an_unexpected_error_is_one_line(topicfs, monkeypatch):
    """An unexpected exception is reported in one line that mentions --debug."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr("topicfs.commands.cat.FilePrinter.show", fail)
    topicfs("topics", "create", "orders")
    ran = topicfs("cat", "orders/0")
    expected = "topicfs: unexpected ZeroDivisionError: no such luck (`topicfs --debug …` shows where)\n"
    assert (1, expected) == (ran.status, ran.errors.decode())


def test_an_exception_without_a_text_is_reported_by_its_type():
    """An exception without a text is reported by the name of its type."""
    from topicfs.main import describe

    assert "StorageError" == describe(StorageError())


FORGED = "x\ntopicfs: all is lost\x1b[2J"
ESCAPED = r"x\ntopicfs: all is lost\x1b[2J"


@pytest.mark.parametrize(
    "words",
    [
        ("config", FORGED),
        ("config", "orders", f"{FORGED}=1"),
        ("config", "orders", f"retention.ms={FORGED}"),
        ("explain", f"orders/0/{FORGED}"),
        ("explain", FORGED),
        ("dump", FORGED),
        ("check", FORGED),
        ("cat", FORGED),
        ("append", "orders/0", FORGED),
        ("topics", "describe", FORGED),
        ("topics", "create", FORGED),
        ("topics", "online", FORGED),
        ("umount", FORGED),
        ("mount", "--config", FORGED, "mnt"),
        (FORGED,),
    ],
    ids=lambda words: " ".join(words).replace(FORGED, "…"),
)
def test_an_error_is_one_escaped_line(orders, words):
    """Names of topics, settings and files are escaped in errors, so that each error stays one line."""
    ran = orders(*words)
    assert 0 != ran.status
    (line,) = ran.errors.decode().splitlines()
    assert line.isprintable()
    assert ESCAPED in line


def test_findings_are_one_line_each(orders, directory):
    """A file name in a finding is escaped, so that each finding stays on one line."""
    (directory / FORGED).mkdir()
    ran = orders("check", "data")
    assert 1 == ran.status
    (line,) = ran.text.splitlines()
    assert line.isprintable()
    assert f"data/{ESCAPED}: " in line


def test_settings_written_by_hand_forge_nothing(orders, directory):
    """`config` and `topics describe` escape the settings in a file that was edited by hand."""
    settings = directory / "topicfs.topics"
    settings.write_text(settings.read_text().replace('"retention.ms"', json.dumps(FORGED)))
    for words in (("config", "orders", "--set"), ("topics", "describe", "orders")):
        ran = orders(*words)
        assert 0 == ran.status
        assert all(line.isprintable() for line in ran.text.replace("\t", " ").splitlines())
    assert f"  {ESCAPED}=-1" in ran.text.splitlines()


@pytest.fixture
def places(orders, directory, tmp_path):
    """A folder with missing, foreign and damaged inputs; the test runs its command in this folder."""
    (tmp_path / "file").write_text("a line\n")
    (tmp_path / "folder" / "photos").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    shutil.copytree(directory, tmp_path / "damaged")
    (tmp_path / "damaged" / "topicfs.topics").write_text("{")
    for name in ("index", "snapshot", "txnindex", "timeindex", "log"):
        (tmp_path / f"00000000000000000000.{name}").write_bytes(bytes(range(1, 102)))
    return orders


NO_DATA_DIRECTORIES = ["nowhere", "file", "folder", "empty", "data/orders-0"]
WANT_ONE = [
    "check {}",
    "maintain {}",
    "maintain --dry-run {}",
    "cat orders/0 --data {}",
    "explain orders/0/1 --data {}",
    "config orders --data {}",
    "config orders retention.ms=1 --data {}",
    "append orders/0 file --data {}",
    "topics list --data {}",
    "topics describe orders --data {}",
    "topics delete orders --data {}",
    "topics online orders --data {}",
    "takeover {} data2",
    "umount {}",
    "dump {}",
    "scrub {}",
]


@pytest.mark.parametrize(
    "words",
    [
        *(words.format(given) for words in WANT_ONE for given in NO_DATA_DIRECTORIES),
        *(f"topics create t --data {given}" for given in ("file", "folder", "data/orders-0")),
    ],
)
def test_a_path_that_is_not_a_data_directory_is_an_error(places, tmp_path, words):
    """If a path is not a data directory, a command fails with one line, and creates nothing."""
    before = sorted(tmp_path.rglob("*"))
    ran = places(*words.split())
    assert 0 != ran.status
    assert 1 == len(ran.errors.decode().splitlines()), ran.errors
    assert before == sorted(tmp_path.rglob("*"))


@pytest.mark.parametrize(
    "words",
    [
        "cat orders/0/what",
        "explain orders/9/0",
        "config nope retention.ms=1",
        "config --config folder",
        "topics online nope",
        "topics online orders/9",
        "dump nowhere",
        "dump 00000000000000000009.log",
        *(
            f"dump 00000000000000000000.{kind}"
            for kind in ("log", "index", "timeindex", "txnindex", "snapshot")
        ),
        "dump data/orders-0/00000000000000000000.log nowhere",
        "check damaged",
        "maintain damaged",
        "maintain --dry-run damaged",
        "topics create t --data damaged",
        "topics delete orders --with-records --data damaged",
        "config orders retention.ms=1 --data damaged",
    ],
)
def test_what_is_missing_or_damaged_ends_with_a_status(places, words):
    """A command that cannot do its task prints the reason, and its exit status is 1."""
    ran = places(*words.split())
    assert 1 == ran.status
    assert ran.errors or ran.output


@pytest.mark.parametrize("given", ["file", "folder", "data/orders-0", "damaged"])
def test_mounting_a_path_that_is_not_a_data_directory_prints_one_line(places, tmp_path, given):
    """A mount of a path that is not a data directory, background or not, prints one line and creates nothing."""
    del places
    before = sorted(tmp_path.rglob("*"))
    for options in ([], ["--foreground"]):
        command = [TOPICFS, "mount", *options, given, "empty"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (1, "") == (ran.returncode, ran.stdout)
        (line,) = ran.stderr.splitlines()
        assert line.startswith(f"topicfs: {tmp_path / given}")
    assert before == sorted(tmp_path.rglob("*"))
