"""`topicfs append`: appends lines to a topic without a mount."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, cast

import click

from topicfs import mounted
from topicfs.callers import completion
from topicfs.coordination.engine import Engine
from topicfs.examples import ExampleCommand
from topicfs.fusefs.appending.framing import BATCHES, LINES, NOTHING, Framing
from topicfs.fusefs.appending.partitioners import KafkaPartitioner
from topicfs.fusefs.appending.targets import (
    Encoder,
    ExactlyOnceEncoder,
    LineTarget,
    PartitionTarget,
    TopicTarget,
)
from topicfs.fusefs.forms import DECODED_SUFFIXES, FORMS, FormError
from topicfs.fusefs.nodes.decoded_forms import DecodedForms
from topicfs.fusefs.reports import Reports
from topicfs.groups.location import serving_mount
from topicfs.lines import say
from topicfs.options import place_option, schema_options
from topicfs.paths import TopicPath, parse_path
from topicfs.places import Place
from topicfs.replication.replicas.startup import producers_of
from topicfs.schemas.places import SchemaPlaces
from topicfs.storage import errors
from topicfs.storage.codec.headers import Codec
from topicfs.storage.disk.native import system_clock
from topicfs.storage.engine import Partition, Topic
from topicfs.storage.idempotence.producer import NamedProducer, whole_lines
from topicfs.storage.idempotence.registry import ProducerRegistry
from topicfs.storage.messages import reason_of
from topicfs.storage.partitioning import keyed_count

RECORD_FILES = tuple(f"log{suffix}" for suffix in (*(form.suffix for form in FORMS), *DECODED_SUFFIXES))
BLOCK_BYTES = 1 << 20
"""Bytes read and appended at a time: the size of the kernel's largest request to a mount."""
Outcome = Callable[[Exception, int, int], str]
"""Returns a text that says what was appended before an error.

The arguments are the error, and the lines and bytes in the blocks before the failed block.
"""
_REFUSALS = (FormError, errors.InvalidRecordError, errors.RecordTooLargeError)
"""Errors after which it is certain that nothing of the block was appended."""
UNBOUNDED = 2**31
"""Limit on a record's size while reading. The topic checks the size later."""


@click.command(
    cls=ExampleCommand,
    examples=r"""
        echo hello | topicfs append orders/0  # a line is a record
        topicfs append orders/0 /var/log/dpkg.log  # a file: checked first, no line if one is no record
        # each line once, also when it is run again after a crash
        topicfs append --producer nightly orders/0 events.txt
        printf 'k1\tv1\n' | topicfs append orders/log.kv  # key TAB value; the key picks the partition
        topicfs cat orders/0/log.json | topicfs append copy/0/log.json  # a copy with times, keys and headers
        # a copy batch by batch, which keeps codecs and producers too
        topicfs cat orders/0/log.batch | topicfs append copy/0/log.batch
        # encoded by the newest schema of the topic
        echo '{"payload":{"id":1}}' | topicfs append orders/0/log.avro.json
        topicfs append --data kafka://host:9092 orders/0 FILE  # to a running cluster
    """,
)
@click.argument("target", metavar="TOPIC[/PARTITION][/NAME]", shell_complete=completion.partitions)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-")
@click.option(
    "--producer",
    metavar="NAME",
    help="Append each line of FILE once, even if you run the command again. The progress is stored under NAME.",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="Codec for the lines, if the topic's compression.type is producer.  "
    "[default: according to compression.type]",
)
@click.option(
    "--acks",
    type=click.Choice(["1", "all"]),
    help="For a cluster: continue once lines are in the leader's log (1), or in those of all in-sync replicas (all).  [default: all]",
)
@schema_options
@place_option
def append(
    target: str,
    *,
    file: Path,
    producer: str | None,
    compression: str | None,
    acks: str | None,
    place: Place,
    schemas: SchemaPlaces,
) -> None:
    """Append the lines of FILE, or of standard input, to a topic.

    NAME is log (a line is a value; the default), log.kv, log.json or, for one partition, log.batch; or log.avro.json,
    log.proto.json, log.jsonschema.json, whose payloads are encoded by the topic's newest schema. A FILE is checked
    before its first record is appended: if a line is invalid, the whole file is refused. Standard input is appended
    as it arrives. If an append fails later, for example on a full disk, the error says how many lines are in the
    topic and, for a FILE and a single partition, which command prints the remaining lines. When the command ends, all
    lines are on disk, or on as many replicas of a cluster as --acks requires. While a daemon of yours, or of root,
    owns the directory, the lines go through its mount, where other programs may append too. An error then says how
    many lines were written, and how many records were added.

    With --producer, the lines carry an idempotent producer's ID, epoch and sequence numbers, which are kept under
    NAME in every data directory. If you run the command again after a crash at any point, or after the file has
    grown, it appends the missing lines and appends no line twice, even to a compacted topic. Runs through a mount
    wait for each other. A topic that was deleted and created again gets all lines. If the command cannot know which
    lines are missing, it appends nothing and reports this. That happens after a crash if records were removed and the
    producer expired (producer.id.expiration.ms after its newest record, by default a day).
    """
    path = parse_path(target)
    _check_call(target, path, producer=producer, compression=compression, acks=acks, place=place)
    if producer is not None and str(file) == "-":
        raise click.UsageError("--producer needs a FILE that can be read again after a crash")
    codec = None if compression is None else Codec[compression.upper()]
    source = "-" if str(file) == "-" else str(file)
    if Path(target).is_file() and str(file) != "-" and not file.exists():
        raise click.UsageError(f"put the topic before the file: topicfs append {file} {target}")
    with click.open_file(source, "rb") as stream:
        mountpoint = serving_mount(place)
        if mountpoint is not None:
            encoded_here = codec is not None or schemas != SchemaPlaces() or producer is not None
            with ExitStack() as files:
                if producer is not None:
                    files.enter_context(mounted.only_run(mountpoint, path.topic, path.partition))
                engine = files.enter_context(place.opened())
                encoder = _encoder(engine, path, codec, schemas) if encoded_here else None
                if encoder is not None and producer is not None:
                    topic = cast("Topic", mounted.MountedTopic(_topic(engine, path), mountpoint, files))
                    _check(stream, LINES, _target(topic, path, encoder), source)
                    through = mounted.MountedProducers(place.directories, mountpoint)
                    _append_once(topic, path, encoder, through, producer=producer, stream=stream)
                    return
                _append_through(mountpoint, engine, path, stream=stream, source=source, encoder=encoder)
            return
        hint = f"cat {source if source != '-' else ''} >> MOUNTPOINT/{path}".replace("  ", " ")
        with place.opened_for_writing(through_mount=hint) as engine:
            encoder = _encoder(engine, path, codec, schemas)
            lines_target = _target(_topic(engine, path), path, encoder)
            framing = BATCHES if path.name == mounted.BATCH_FILE else LINES
            _check(stream, framing, lines_target, source)
            if producer is not None:
                topic, producers = _topic(engine, path), producers_of(engine)
                _append_once(topic, path, encoder, producers, producer=producer, stream=stream)
                return
            # A directory is flushed once at the end; a cluster confirms each append.
            take = partial(lines_target.append, durable=engine.remote and acks != "1")
            outcome = _outcome(_ends(engine, path), path, framing, source)
            sync = (lambda: None) if engine.remote else lines_target.sync
            _each(stream, framing, take, source, outcome, sync)


def _check_call(
    target: str,
    path: TopicPath,
    *,
    producer: str | None,
    compression: str | None,
    acks: str | None,
    place: Place,
) -> None:
    """Raise InvalidNameError unless the target is a file of records, click.UsageError for options that do not apply."""
    if path.name == mounted.BATCH_FILE and path.partition is None:
        raise errors.InvalidNameError(
            f"{target}: batches can only be appended to one partition, as {path.topic}/0/{path.name}"
        )
    if path.name not in {*RECORD_FILES, mounted.BATCH_FILE}:
        raise errors.InvalidNameError(
            f"{target}: records are appended to {', '.join(RECORD_FILES)} or {mounted.BATCH_FILE}"
        )
    if producer is not None and path.name == mounted.BATCH_FILE:
        raise click.UsageError("--producer numbers lines; batches carry their own producers")
    if compression is not None and path.name == mounted.BATCH_FILE:
        raise click.UsageError("--compression applies to lines; batches keep their own codecs")
    if acks is not None and place.cluster is None:
        raise click.UsageError(
            "--acks applies to a cluster; with a data directory, all lines are on disk when the command ends"
        )
    if producer is not None and place.cluster is not None:
        raise click.UsageError("--producer needs a data directory for its progress; a cluster has none")


def _append_through(
    mountpoint: Path,
    engine: Engine,
    path: TopicPath,
    *,
    stream: IO[bytes],
    source: str,
    encoder: Encoder | None,
) -> None:
    """Append through the mount of the daemon that owns the directory. `engine` reads the directory's files.

    `encoder`, if given, makes the batches in this process: compressed, or by schemas that the daemon does not have.
    """
    framing = BATCHES if path.name == mounted.BATCH_FILE else LINES
    topic = _topic(engine, path)
    ends = partial(mounted.end_offsets, mountpoint / path.topic, topic.topic_id, path.partition)
    outcome = _outcome(ends, path, framing, source, alone=False)
    with ExitStack() as files:
        if encoder is not None:
            target = _target(cast("Topic", mounted.MountedTopic(topic, mountpoint, files)), path, encoder)
            _check(stream, framing, target, source)
            _each(stream, framing, target.append, source, outcome, target.sync)
            return
        if not path.name.endswith(DECODED_SUFFIXES):  # Only the daemon knows where it looks for schemas.
            target = _target(topic, path, _encoder(engine, path, None, SchemaPlaces()))
            _check(stream, framing, target, source)
        file = files.enter_context((mountpoint / str(path)).open("ab", buffering=0))
        told = mounted.explained(mountpoint, str(path))
        take, sync = told(partial(mounted.write, file)), told(partial(os.fsync, file.fileno()))
        cut = mounted.batch_groups if framing is BATCHES else mounted.line_groups
        _each(stream, framing, take, source, outcome, sync, cut=cut)


def _check(stream: IO[bytes], framing: Framing, target: LineTarget, source: str) -> None:
    """Check all lines of a file before the first line is appended. Raises StorageError."""
    if source != "-" and stream.seekable():
        _each(stream, framing, target.check, source, lambda *_: "nothing was appended")
        stream.seek(0)


def _append_once(
    topic: Topic,
    path: TopicPath,
    encoder: Encoder,
    producers: ProducerRegistry,
    *,
    producer: str,
    stream: IO[bytes],
) -> None:
    """Append the lines of the file that are not in the log yet, and print their number."""
    partitions = _partitions(topic, path)
    if path.partition is None:
        keyed_count(topic.name, partitions)
    name = f"{Path(stream.name).resolve()} > {path}@{topic.topic_id}"
    run = NamedProducer(producers, producer, name, partitions)
    outcome = run.append_file(
        stream, ExactlyOnceEncoder(encoder, next(iter(partitions.values()))), whole_lines
    )
    passed = f", {outcome.passed_over} were there already" if outcome.passed_over else ""
    say(
        f"{producer}: {outcome.appended} records appended to {path}{passed}; "
        f"{stream.name} is in up to byte {outcome.position} (producer id {outcome.producer_id}, epoch {outcome.epoch})"
    )


def _partitions(topic: Topic, path: TopicPath) -> Mapping[int, Partition]:
    partitions = topic.partitions()
    return partitions if path.partition is None else {path.partition: partitions[path.partition]}


def _encoder(engine: Engine, path: TopicPath, codec: Codec | None, schemas: SchemaPlaces) -> Encoder:
    forms = DecodedForms(partial(schemas.catalog, engine))
    parser = forms.parser(path.name.removeprefix("log"), path.topic)
    return Encoder(parser, system_clock, Reports(system_clock), codec)


def _topic(engine: Engine, path: TopicPath) -> Topic:
    """Return the topic of a path. Raises UnknownTopicError if the topic or its partition does not exist."""
    if path.partition is not None:
        engine.partition(path.topic, path.partition)
    return engine.topic(path.topic)


def _target(topic: Topic, path: TopicPath, encoder: Encoder) -> LineTarget:
    if topic.internal:
        raise errors.PolicyViolationError(f"{topic.name}: is Kafka's own topic; only Kafka writes to it")
    if path.partition is None:
        return TopicTarget(str(path), topic, encoder, KafkaPartitioner())
    return PartitionTarget(str(path), topic.partitions()[path.partition], encoder)


def _each(
    stream: IO[bytes],
    framing: Framing,
    take: Callable[[bytes], None],
    source: str,
    outcome: Outcome,
    sync: Callable[[], None] = lambda: None,
    *,
    cut: Callable[[bytes], Iterable[bytes]] = lambda block: (block,),
) -> None:
    """Pass the records of `stream` to `take`, block by block. Errors name the line and the outcome.

    `cut` splits a block into parts for `take`. `sync` is called after the last block. It is also called before the
    first block, because it fails if too few replicas are in sync.
    """
    lines = size = 0
    try:
        sync()
        for block in blocks(stream, framing):
            for part in cut(block):
                take(part)
                lines += part.count(b"\n")
                size += len(part)
        sync()
    except (FormError, OSError, errors.StorageError) as error:
        reason = reason_of(error)
        if isinstance(error, FormError):
            reason = f"line {lines + error.line_number}: {error.reason}"
        kept = outcome(error, lines, size)
        name = "standard input" if source == "-" else source
        raise errors.StorageError(f"{name}: {reason}{'; ' if kept else ''}{kept}") from None


def _ends(engine: Engine, path: TopicPath) -> Callable[[], int] | None:
    """Return a function that adds up the end offsets of the path's partitions; None for a cluster."""
    if engine.remote:
        return None
    partitions = _partitions(engine.topic(path.topic), path).values()
    return lambda: sum(one.offsets().log_end_offset for one in partitions)


def _outcome(
    ends: Callable[[], int] | None, path: TopicPath, framing: Framing, source: str, *, alone: bool = True
) -> Outcome:
    """Return a function that describes, after an error, how many lines are in the topic and how to continue.

    `ends` returns the sum of the partitions' end offsets. If `ends` is None, or if batches are appended, the message
    counts blocks instead of lines. `alone` is False if other programs may append meanwhile.
    """
    before = 0 if ends is None else ends()

    def outcome(error: Exception, lines: int, size: int) -> str:
        if ends is None or framing is BATCHES:
            blocks = f"{size} bytes" if framing is BATCHES else f"{lines} lines"
            nothing = "nothing was appended" if isinstance(error, _REFUSALS) else ""
            return f"the {blocks} before its block were appended" if size else nothing
        try:
            count = ends() - before  # Each line is a record.
        except OSError:  # The mount has ended.
            return f"the first {lines} lines were written"
        if count != lines and not alone:
            more = f"{count - lines} more records were added, from later lines or by other writers"
            less = f"but the topic has only {count} more records"
            return f"the first {lines} lines were written; {more if count > lines else less}"
        if count and path.partition is None and count != lines:
            return (
                f"{count} lines were appended: the first {lines}, and {count - lines} of the later ones; with "
                "--producer an append can be run again"
            )
        rest = "" if source == "-" else f"; to print the rest: tail -n +{count + 1} {shlex.quote(source)}"
        return f"the first {count} lines were appended{rest}" if count else "nothing was appended"

    return outcome


def blocks(stream: IO[bytes], framing: Framing = LINES) -> Iterator[bytes]:
    """Yield the records of `stream`, some MiB at a time.

    If the last line has no line end, adds one. If the last batch is incomplete, raises InvalidRecordError.
    """
    waiting = NOTHING
    while data := stream.read(BLOCK_BYTES):
        framed = framing.frame(waiting, data, UNBOUNDED)
        waiting = framed.waiting
        if framed.lines:
            yield framed.lines
    if waiting.tail:
        yield framing.ended(waiting.tail)
