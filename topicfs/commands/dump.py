"""`topicfs dump`: prints segments and indexes as kafka-dump-log does."""

from __future__ import annotations

import sys
from typing import Any

import click

from topicfs.examples import ExampleCommand
from topicfs.inspection.dump.decoders import RecordDecoder
from topicfs.inspection.dump.files import dump as dump_files
from topicfs.inspection.dump.log import UNLIMITED_BYTES, DumpOptions
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.messages import printable


@click.command(
    cls=ExampleCommand,
    examples="""
        topicfs dump data/orders-0/00000000000000000000.log  # every batch of a segment, one per line
        topicfs dump --print-data-log data/orders-0/*.log  # with every record, its key and its value
        topicfs dump --files a/00000000000000000000.index,a/00000000000000000000.timeindex  # as Kafka spells it
        topicfs dump --verify-index-only mnt/orders/0/segments/*.index  # compare indexes with their segments
    """,
)
@click.argument("names", metavar="[FILE]…", nargs=-1)
@click.option("--files", metavar="A,B", default="", help="Files to dump, separated by commas.")
@click.option("--print-data-log", is_flag=True, help="Print each record with its key and value.")
@click.option("--deep-iteration", is_flag=True, help="Print a line for each record, without its content.")
@click.option("--offsets-decoder", is_flag=True, help="Print the records of __consumer_offsets as JSON.")
@click.option(
    "--transaction-log-decoder", is_flag=True, help="Print the records of __transaction_state as JSON."
)
@click.option("--skip-record-metadata", is_flag=True, help="Print only key and value of each record.")
@click.option("--verify-index-only", is_flag=True, help="Compare indexes with their segment, print no entry.")
@click.option("--index-sanity-check", is_flag=True, help="Check an index as a broker does when it starts.")
@click.option(
    "--max-bytes", type=click.IntRange(0), default=UNLIMITED_BYTES, help="Read at most this many bytes."
)
@click.option(
    "--max-message-size",
    type=click.IntRange(1),
    default=5_242_880,
    show_default=True,
    help="Size of the largest batch, in bytes.",
)
@click.pass_context
def dump(
    context: click.Context,
    /,
    names: tuple[str, ...],
    *,
    files: str,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    **of_the_dump: Any,
) -> None:
    """Print segments, indexes and producer snapshots in the text of kafka-dump-log.

    Nothing is changed or locked, so a broker or daemon may be running. Mismatches, such as between an index and its
    segment, are printed on standard error at the end, as kafka-dump-log does. The exit status is 1 after a mismatch,
    and if a file cannot be dumped.
    """
    every_name = [*(name for name in files.split(",") if name), *names]
    if not every_name:
        raise click.UsageError("give a file to dump")
    if offsets_decoder and transaction_log_decoder:
        raise click.UsageError("choose one decoder: a segment has the records of one topic")
    decoder = RecordDecoder.TRANSACTIONS if transaction_log_decoder else None
    options = DumpOptions(decoder=RecordDecoder.OFFSETS if offsets_decoder else decoder, **of_the_dump)
    # A program gets the same bytes as from kafka-dump-log; a terminal gets no control characters.
    terminals = {False: sys.stdout.isatty(), True: sys.stderr.isatty()}
    has_errors = False
    for line in dump_files(every_name, options, NativeFileSystem(read_only=True)):
        has_errors |= line.error
        # click.echo would flush each of possibly millions of lines.
        print(
            printable(line.text) if terminals[line.error] else line.text,
            file=sys.stderr if line.error else sys.stdout,
        )
    if has_errors:
        context.exit(1)
