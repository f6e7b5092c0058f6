"""`topicfs maintain`: shows and runs the due duties of a data directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from topicfs.data_directory import opened_alone, require_directories
from topicfs.examples import ExampleCommand
from topicfs.fusefs.times import TimeError, parse_time
from topicfs.lines import say
from topicfs.options import data_argument
from topicfs.storage.disk.native import NativeFileSystem, system_clock
from topicfs.storage.duties.plan import PlannedCleaning, PlannedDeletion, PlannedRoll, PlannedStep
from topicfs.storage.manager import LogManager
from topicfs.storage.model import Timestamp
from topicfs.storage.retention import Reason
from topicfs.storage.topics.registry import read_copy


def time(text: str) -> Timestamp:
    """Parse a time as selectors do. An invalid time is a usage error."""
    try:
        return parse_time(text)
    except TimeError as error:
        raise click.BadParameter(str(error)) from None


@click.command(
    cls=ExampleCommand,
    examples="""
        topicfs maintain ./data --dry-run  # what is due now, and why; a daemon may run
        topicfs maintain ./data  # do it
        topicfs maintain ./data --dry-run --now 2027-01-01  # what will be due by then
        topicfs maintain /var/lib/kafka/data --dry-run --json | jq '.steps[].what'  # for programs
    """,
)
@data_argument
@click.option("--now", type=time, metavar="T", help="The time to use, as in selectors.  [default: now]")
@click.option("--dry-run", is_flag=True, help="Print what is due, and change nothing; reads only.")
@click.option("--json", "as_program", is_flag=True, help="One JSON object in place of text.")
@click.pass_context
def maintain(
    context: click.Context,
    directories: tuple[Path, ...],
    *,
    now: Timestamp | None,
    dry_run: bool,
    as_program: bool,
) -> None:
    """Roll, delete and compact what is due, printing each step with its reason.

    A daemon does this by itself. This command does it immediately, even if the periods of the duties have not passed.
    It also rolls segments whose time has passed, even if no next record arrives, so that a quiet topic can be
    compacted. With --dry-run nothing is changed, so a daemon or a broker may be running.
    """
    require_directories(directories)
    moment = Timestamp(system_clock() if now is None else now)
    if dry_run:
        require_settings(directories)
        with opened_alone(directories, read_only=True) as engine:
            _show(engine, engine.plan_maintenance(moment), moment, dry_run=True, as_program=as_program)
        return
    instead = "its owner does this by itself (--dry-run shows what is due)"
    with opened_alone(directories, read_only=False, through_mount=instead) as engine:
        _show(engine, engine.plan_maintenance(moment), moment, dry_run=False, as_program=as_program)
        before = engine.warnings
        engine.maintain_now(moment)
        failed = any(line not in before for line in engine.warnings)
    if failed:  # The engine has already logged the error.
        context.exit(1)


def require_settings(directories: Sequence[Path]) -> None:
    """Raise CorruptionError if the topics' settings cannot be read: the due steps depend on these settings."""
    files = NativeFileSystem(read_only=True)
    for directory in directories:
        read_copy(directory, files)


def _show(
    engine: LogManager, steps: Sequence[PlannedStep], now: Timestamp, *, dry_run: bool, as_program: bool
) -> None:
    if engine.foreign:
        say("topicfs: a broker stores its topics' settings elsewhere; assuming the defaults", error=True)
    if as_program:
        content = {"now": now, "dry_run": dry_run, "steps": [as_json(step) for step in steps]}
        click.echo(json.dumps(content))
        return
    for step in steps:
        say(as_text(step))
    if not steps:
        say("nothing is due", error=True)


def as_text(step: PlannedStep) -> str:
    """Return one line: partition, step, segment or offsets, reason."""
    match step:
        case PlannedRoll():
            why = f"{step.reason}: {step.size_bytes:,} bytes, open for {span(step.open_ms)} of {span(step.limit_ms)}"
            return f"{step.partition} roll {step.base_offset:020} {why}"
        case PlannedDeletion():
            return f"{step.partition} delete {step.base_offset:020} {_why_deleted(step)}, {step.size_bytes:,} bytes"
        case PlannedCleaning(plan=plan):
            total = plan.clean_bytes + plan.cleanable_bytes
            why = (
                "max.compaction.lag.ms has passed"
                if plan.overdue
                else f"ratio {plan.cleanable_ratio:.2f} > min.cleanable.dirty.ratio={step.min_ratio:g}"
            )
            return (
                f"{step.partition} compact offsets {plan.first_dirty_offset} to {plan.end_offset - 1} {why}: "
                f"{plan.cleanable_bytes:,} of {total:,} bytes are dirty"
            )


def _why_deleted(step: PlannedDeletion) -> str:
    if step.reason is Reason.SIZE:
        return f"retention.bytes={step.limit}: {step.excess_bytes:,} bytes too many"
    if step.reason is Reason.AGE:
        return f"retention.ms={step.limit}: newest record {span(step.age_ms)} old, limit {span(step.limit)}"
    return f"{step.reason.value} {step.limit}"


def span(milliseconds: int) -> str:
    """Format a duration for people: in seconds, or in milliseconds below one second."""
    if abs(milliseconds) < 1000:
        return f"{milliseconds} ms"
    try:
        return str(timedelta(seconds=milliseconds // 1000))
    except OverflowError:
        return f"{milliseconds} ms"


def as_json(step: PlannedStep) -> dict[str, Any]:
    """Return a step for programs, including every number that the decision depends on."""
    common = {"topic": step.partition.topic, "partition": step.partition.partition}
    match step:
        case PlannedRoll():
            return {
                "what": "roll",
                **common,
                "segment": step.base_offset,
                "bytes": step.size_bytes,
                "reason": step.reason,
                "open_ms": step.open_ms,
                "limit_ms": step.limit_ms,
            }
        case PlannedDeletion():
            return {
                "what": "delete",
                **common,
                "segment": step.base_offset,
                "bytes": step.size_bytes,
                "reason": step.reason.value,
                "limit": step.limit,
                "age_ms": step.age_ms,
                "excess_bytes": step.excess_bytes,
            }
        case PlannedCleaning(plan=plan):
            return {
                "what": "compact",
                **common,
                "first_dirty_offset": plan.first_dirty_offset,
                "end_offset": plan.end_offset,
                "clean_bytes": plan.clean_bytes,
                "cleanable_bytes": plan.cleanable_bytes,
                "cleanable_ratio": plan.cleanable_ratio,
                "min_ratio": step.min_ratio,
                "overdue": plan.overdue,
            }
