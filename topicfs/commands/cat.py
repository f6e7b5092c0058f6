"""`topicfs cat`: prints files as a mount would show them, but needs no mount."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import aclosing, closing, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import click

from topicfs.callers import completion
from topicfs.data_directory import opened_for_reading
from topicfs.examples import ExampleCommand
from topicfs.fusefs.forms import SUFFIXES
from topicfs.lines import say
from topicfs.main import describe
from topicfs.options import place_option, schema_options
from topicfs.paths import TopicPath, parse_path
from topicfs.places import Place
from topicfs.schemas.places import SchemaPlaces
from topicfs.storage.disk import names
from topicfs.storage.errors import StorageError, UnknownTopicError
from topicfs.storage.model import Isolation, Offset
from topicfs.storage.topics.topic import NO_TOPIC_ID

if TYPE_CHECKING:
    from topicfs.coordination.engine import Engine
    from topicfs.formats.printer import FormatPrinter

CAT_POLL_SECONDS = 0.2
TICK_NS = 100_000_000
"""A file time newer than this (in nanoseconds) may hide a later change: file times advance in steps of up to 10 ms."""
Signature: TypeAlias = tuple[int, ...]


@click.command(
    cls=ExampleCommand,
    examples=(
        ("topicfs cat orders/0", "every value of a partition, one per line"),
        ("topicfs cat orders/0/log.json | jq .payload", "with offsets, times, keys and headers"),
        ("topicfs cat orders/0/42", "exactly the value at offset 42"),
        ("topicfs cat orders/0/42-99.kv", "key TAB value of a range"),
        ("topicfs cat orders/0/-10", "the last ten"),
        ("topicfs cat orders/0/log.batch > orders.batches", "the record batches themselves"),
        ("topicfs cat orders/0/@2026-11-21T03:00:00Z-", "from a moment on"),
        ("topicfs cat orders/0/@2h- orders/@yesterday-@today", "the last two hours; all of yesterday"),
        ("topicfs cat orders/log.json", "all partitions, merged by time"),
        ("topicfs cat orders/config orders/0/status", "settings, offsets and sizes"),
        ("topicfs cat --follow orders/0/log.json", "with new records, until Ctrl-C"),
        ("topicfs cat --group billing orders/log", "unread records of the group; moves its position"),
        (r"topicfs cat orders/0 --format '%T %k %S\n'", "kcat's tokens: time, key, length of the value"),
        ("topicfs cat orders/@yesterday-@today --format csv", "for a spreadsheet"),
        ("topicfs cat orders/log --format parquet > orders.parquet", "for DuckDB, pandas and Spark"),
        ("topicfs cat --data /var/lib/kafka/data orders/0", "from a broker's files, while the broker runs"),
        ("topicfs cat --data kafka://localhost:9092 orders/0/-10", "from a cluster"),
        ("topicfs cat orders/0/log.avro.json", "Avro, decoded by the schemas of topic _schemas"),
        ("topicfs cat --schema-dir ./schemas orders/0/-10.proto.json", "Protobuf, by 12.proto and others"),
    ),
)
@click.argument("paths", metavar="PATH…", nargs=-1, required=True, shell_complete=completion.paths)
@click.option("--follow", "-f", is_flag=True, help="Continue with records that are appended later.")
@click.option(
    "--group",
    metavar="GROUP",
    help="Read as a member of GROUP (created if missing), and move its positions. With --follow, wait for more.",
)
@click.option(
    "--format",
    "-F",
    "shown_as",
    metavar="FORMAT",
    shell_complete=completion.formats,
    help="Records as csv, arrow or parquet, or as a text with kcat's tokens: %s %k %h, %S %K (lengths), %R, %t %p %o %T.",
)
@click.option(
    "--isolation",
    type=click.Choice([level.value for level in Isolation]),
    default=Isolation.READ_COMMITTED.value,
    show_default=True,
    help="Whether to show records of aborted transactions.",
)
@schema_options
@place_option
def cat(
    paths: tuple[str, ...],
    *,
    follow: bool,
    group: str | None,
    shown_as: str | None,
    isolation: str,
    place: Place,
    schemas: SchemaPlaces,
) -> None:
    r"""Print the content of files by their paths in a mount.

    PATH is relative to the mountpoint: TOPIC/PARTITION/NAME, TOPIC/NAME, a file in @groups or @queues, or @status,
    @metrics, @producers, @scrub. NAME in a partition is log (the default), a record (42, @TIME, earliest, latest) or
    a range (42-99, 42-, -10, @TIME-@TIME, @TIME-), each as it is, with .kv, .json or .batch, or with payloads decoded
    by their schemas as .avro.json, .proto.json or .jsonschema.json; or start, state, status, segments/FILE. NAME in a
    topic is log or a range of times, which merge the topic's partitions; or config, status and, with several
    replicas, replicas. Instead of follow, which has no end, use --follow.

    Nothing is locked or changed. While a daemon runs, all records are shown; while a broker runs, only the records
    below its last checkpoint. To see the newest records, read from the cluster.

    At a damaged batch, a file ends with the records before the batch, an error and exit status 1. The following files
    are still printed. To see the records after the batch, use a range that begins after it.

    With --group, PATH is TOPIC/log, .kv, .json or .batch. Printed records are committed when the next piece is read,
    or at the end. While a daemon owns the directory, this reads through its mount.

    With --format, PATH names records: log, a record or a range, without a suffix. A text is printed for each record,
    with \n \r \t \xHH for special characters; csv begins with a line of column names; arrow is Arrow's stream and
    parquet a file, with the columns of Spark's Kafka source.
    """
    if follow and len(paths) > 1:
        raise click.UsageError("--follow needs exactly one path")
    output = sys.stdout.buffer
    level = Isolation(isolation)
    if group is not None:
        if len(paths) > 1:
            raise click.UsageError("--group needs exactly one path")
        if shown_as is not None:
            raise click.UsageError(
                "--group cannot be combined with --format; choose a form by the path's suffix"
            )
        from topicfs.groups.reader import Shown, copy_as_member

        copy_as_member(place, group, paths[0], output, shown=Shown(level, schemas), follow=follow)
        return
    printer = _printer(shown_as, FilePrinter(output, level, place.directories, schemas), follow=follow)
    if follow:
        follow_from(place, parse_path(paths[0]), printer)
        return
    failures: list[StorageError | click.ClickException] = []
    with place.opened() as engine:
        for path in paths:
            try:
                printer.show(engine, path)
            except (StorageError, click.ClickException) as error:
                failures.append(error)
    printer.end()
    for earlier in failures[:-1]:
        say(f"topicfs: {describe(earlier)}", error=True)
    if failures:
        raise failures[-1]


class _Later(ModuleType):
    """A module that is imported when one of its names is first used.

    (`importlib.util.LazyLoader` would import the module at the next import statement, which reads the module's spec.)
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def _printer(shown_as: str | None, plain: FilePrinter, *, follow: bool) -> FormatPrinter:
    if shown_as is None:
        return plain
    from topicfs.formats.printer import PARQUET, printer_of

    if follow and shown_as == PARQUET:
        raise click.UsageError(
            "a Parquet file cannot be followed because it needs an end; use --format arrow"
        )
    return printer_of(shown_as, plain.output, plain.isolation)


class FilePrinter:
    """Prints files as a mount shows them."""

    def __init__(
        self,
        output: BinaryIO,
        isolation: Isolation,
        directories: tuple[Path, ...],
        schemas: SchemaPlaces | None = None,
    ) -> None:
        self.output, self.isolation = output, isolation
        self._directories, self._schemas = directories, schemas

    def show(self, engine: Engine, path: str) -> Offset | None:
        """Write a file's content.

        If the file grows with its partition, return the offset that follows the content, otherwise None.
        """
        sys.modules.setdefault("trio", _Later("trio"))
        from topicfs.fusefs.reader import PathError, run_alone

        try:
            return run_alone(self._copy(engine, path))
        except PathError as error:
            raise click.ClickException(str(error)) from error

    async def _copy(self, engine: Engine, path: str) -> Offset | None:
        from topicfs.fusefs.reader import MountReader

        reader = MountReader(
            engine, directories=self._directories, isolation=self.isolation, schemas=self._schemas
        )
        with closing(reader):
            file = reader.find(path)
            async with aclosing(reader.contents(file)) as contents:
                data: bytes | memoryview = b"\n"
                async for data in contents:
                    self.output.write(data)
            if data[-1:] != b"\n" and self.output.isatty():
                self.output.write(b"\n")  # The prompt, or the next file, should start on a new line.
            return reader.end_of(file)

    def flush(self) -> None:
        self.output.flush()

    def end(self) -> None:
        self.output.flush()


def follow_from(place: Place, path: TopicPath, printer: FormatPrinter) -> None:
    """Print the content of a path and then appended records, until interrupted or until the topic is deleted."""
    if place.cluster is None:
        _follow_directories(place.directories, path, printer)
        return
    with place.opened() as engine, suppress(UnknownTopicError):
        news = threading.Event()
        topic_id = engine.topic(path.topic).topic_id
        engine.partition(*path.topic_partition).listen(news.set)
        name, suffix = _followed_path(path)
        offset = _growing(name, printer.show(engine, name))
        while True:
            printer.flush()
            news.wait()
            news.clear()
            _check_same(engine, path, topic_id)
            rest = f"{path.topic}/{path.partition}/{offset}-{suffix}"
            offset = printer.show(engine, rest) or offset


def _growing(path: str, offset: Offset | None) -> Offset:
    if offset is None:
        raise click.UsageError(f"{path} does not grow; --follow needs log or an open range, such as 42-")
    return offset


def _follow_directories(directories: tuple[Path, ...], place: TopicPath, printer: FormatPrinter) -> None:
    """Follow directories that another process writes, by opening them again after each checkpoint of that process.

    The signature is computed before the directories are read, so that the next comparison notices a concurrent
    change.
    """
    path, suffix = _followed_path(place)
    seen = signature(directories)
    with opened_for_reading(directories) as engine:
        offset = _growing(path, printer.show(engine, path))
        topic_id = engine.topic(place.topic).topic_id
    printer.flush()
    while True:
        time.sleep(CAT_POLL_SECONDS)
        present = signature(directories)
        if present is not None and present == seen:
            continue
        seen = present
        rest = f"{place.topic}/{place.partition}/{offset}-{suffix}"
        try:
            with opened_for_reading(directories) as engine:
                _check_same(engine, place, topic_id)
                offset = printer.show(engine, rest) or offset
        except (UnknownTopicError, FileNotFoundError):
            return
        printer.flush()


def _check_same(engine: Engine, path: TopicPath, topic_id: str) -> None:
    """Raise UnknownTopicError if the partition is gone, even if a new partition has the same name."""
    engine.partition(*path.topic_partition)
    if topic_id not in (NO_TOPIC_ID, engine.topic(path.topic).topic_id):
        raise UnknownTopicError.of(path.topic)


def _followed_path(place: TopicPath) -> tuple[str, str]:
    """Return the path to follow in a partition, and the suffix of its form. Raises InvalidNameError for a topic."""
    topic, partition = place.topic_partition
    suffix = next((suffix for suffix in SUFFIXES if place.name.endswith(suffix)), "")
    return f"{topic}/{partition}/{place.name}", suffix


def signature(directories: tuple[Path, ...]) -> Signature | None:
    """Return values that change when the owner of the directories writes a checkpoint or ends.

    Return None if the newest file time is very recent or in the future. File times advance by the kernel's tick, so
    another change within the same tick would not be visible.
    """
    watched = (names.HIGH_WATERMARKS, names.CLEAN_SHUTDOWN, names.LOCK)
    stable_before_ns = time.time_ns() - TICK_NS
    modified = tuple(_modified(directory / name) for directory in directories for name in watched)
    return modified if max(modified) < stable_before_ns else None


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
