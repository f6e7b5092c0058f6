"""The command's entry: finds the sub-command, and turns every error into one clear line and an exit status."""

from __future__ import annotations

import errno
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TextIO

import click

from storage.errors import StorageError
from storage.messages import PrintableFormatter, printable, reason_of
from topicfs.callers.interrupts import keep_interrupts
from topicfs.examples import ExampleGroup

SUCCESS, FAILURE, MISUSE, INTERRUPTED = 0, 1, 2, 130
"""Exit statuses: done; not done, or `check` found something; not understood; ended by Ctrl-C."""

COMMANDS = {
    "mount": "topicfs.commands.mount:mount",
    "umount": "topicfs.commands.mount:umount",
    "topics": "topicfs.commands.topics:topics",
    "replicas": "topicfs.commands.replicas:replicas",
    "config": "topicfs.commands.config:config",
    "cat": "topicfs.commands.cat:cat",
    "append": "topicfs.commands.append:append",
    "groups": "topicfs.commands.groups:groups",
    "top": "topicfs.commands.top:top",
    "work": "topicfs.commands.work:work",
    "explain": "topicfs.commands.explain:explain",
    "maintain": "topicfs.commands.maintain:maintain",
    "check": "topicfs.commands.check:check",
    "scrub": "topicfs.commands.scrub:scrub",
    "dump": "topicfs.commands.dump:dump",
    "pipeline": "topicfs.commands.pipeline.group:pipeline",
    "mirror": "topicfs.commands.mirror:mirror_topics",
    "handover": "topicfs.commands.handover:handover",
    "takeover": "topicfs.commands.handover:takeover",
    "completion": "topicfs.commands.completion:completion",
    "manual": "topicfs.commands.manual:manual",
}
"""The module and the name of each sub-command. A module is imported when its command is asked for, so that `dump` on a
machine without FUSE never meets pyfuse3."""


class LazyGroup(ExampleGroup):
    """A group whose commands are those of COMMANDS, in that order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return names in the order in which a new user needs them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    examples=(
        ("topicfs mount ./data ./mnt", "./data keeps the topics, ./mnt shows them"),
        ("mkdir mnt/orders", "a topic with one partition"),
        ("echo hello >> mnt/orders/0/log", "a record"),
        ("cat mnt/orders/0/log", "every record, one a line"),
        ("cat mnt/orders/0/0.json", "the record at offset 0 with all its metadata"),
        ("tail -f mnt/orders/0/log", "follow"),
        ("topicfs umount ./mnt", "the end"),
    ),
)
@click.version_option(package_name="topicfs", message="topicfs %(version)s")
@click.option("--debug", is_flag=True, envvar="TOPICFS_DEBUG", help="Show the traceback of an error.")
def cli(*, debug: bool) -> None:
    """Durable, Kafka-compatible topics as plain files.

    A mount shows topics as directories and records as lines. Without FUSE `topicfs append` and `topicfs cat` do the
    same on the data directory. Every command explains itself by examples: topicfs COMMAND --help.
    """
    del debug
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("topicfs: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def describe(error: BaseException) -> str:
    """Return one line for a person: the thing, the cause, and the remedy where the error knows one."""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{error.format_message().rstrip('.')} (see `{error.ctx.command_path} --help`)"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, StorageError) or (isinstance(error, OSError) and error.strerror):
        return reason_of(error)
    return f"unexpected {type(error).__name__}: {error} (`topicfs --debug …` shows where)"


def status_of(error: BaseException) -> int:
    """Return the exit status for a kind of failure."""
    return MISUSE if isinstance(error, click.UsageError) else FAILURE


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit; or answer a shell that completes its words."""
    if arguments is None and (asked := _answer_shell()) is not None:
        sys.exit(asked)
    keep_interrupts()
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def _answer_shell() -> int | None:
    if "_TOPICFS_COMPLETE" not in os.environ:
        return None
    from topicfs.callers.completion import instructed  # noqa: PLC0415 - a shell alone needs it

    return instructed(cli)


def run(arguments: Sequence[str], errors: TextIO | None = None) -> int:
    """Run the command; return its exit status."""
    try:
        with cli.make_context("topicfs", list(arguments)) as context:
            cli.invoke(context)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        return MISUSE
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a person gets one line whatever happens
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            return _reader_went_away()
        return _failed(
            error, errors or sys.stderr, debug="--debug" in arguments[:1] or "TOPICFS_DEBUG" in os.environ
        )
    return SUCCESS


def _failed(error: Exception, errors: TextIO, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error, file=errors)
    click.echo(f"topicfs: {printable(describe(error))}", file=errors)
    return status_of(error)


def _reader_went_away() -> int:
    """End quietly: the reader of our output closed it (`| head`), and nothing may be flushed into the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return SUCCESS
