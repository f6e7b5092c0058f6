"""The command's entry point: runs a sub-command, and turns every error into one clear line and an exit status."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

import click

from topicfs.examples import ExampleGroup

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
import signal

SUCCESS, FAILURE, MISUSE, INTERRUPTED = 0, 1, 2, 130
"""Exit statuses: success; failure, or `check` found something; usage error; interrupted by Ctrl-C."""

COMMANDS = {
    "mount": ("mount:mount", "Show the topics of a directory, or of a cluster, as files."),
    "umount": ("mount:umount", "Unmount, with all records on disk."),
    "serve": ("serve:serve", "Serve the topics of a directory to Kafka clients."),
    "listener-user": ("listener_user:listener_user", "Make an entry for a listener's file of users."),
    "topics": ("topics:topics", "Create, list, describe and delete topics; bring them online."),
    "replicas": ("replicas:replicas", "Show replicas, elect leaders, and move replicas."),
    "config": ("config:config", "Show settings with their sources; change settings of a topic."),
    "cat": ("cat:cat", "Print files of a mount, without a mount."),
    "append": ("append:append", "Append lines to a topic."),
    "groups": ("groups:groups", "List, describe, reset and delete groups and queues."),
    "transactions": ("transactions:transactions", "List, describe and abort transactions of Kafka clients."),
    "top": ("top:top", "Watch topics: rates, sizes, lag, readers and writers."),
    "work": ("work:work", "Run a command once for each record of a queue."),
    "explain": ("explain:explain", "Explain step by step how a record is found."),
    "maintain": ("maintain:maintain", "Roll, delete and compact what is due."),
    "check": ("check:check", "Check every byte of a data directory."),
    "scrub": ("scrub:scrub", "Read everything, and heal what is damaged."),
    "dump": ("dump:dump", "Print segments and indexes as kafka-dump-log does."),
    "pipeline": ("pipeline:pipeline", "Jobs over whole topics, run by Spark."),
    "mirror": ("mirror:mirror_topics", "Copy topics of a Kafka cluster, and keep the copy up to date."),
    "handover": ("handover:handover", "Put the topics of a data directory under a Kafka broker."),
    "takeover": ("handover:takeover", "Take the topics of a stopped Kafka broker into a directory."),
    "completion": ("completion:completion", "Print a script by which a shell completes topics and options."),
    "manual": ("manual:manual", "Write manual pages for man(1)."),
}
"""The module in `commands`, the name and the help line of each sub-command. A module is imported when its command
runs, so that `dump` works without pyfuse3, and the help of the whole command imports no module.
"""


class LazyGroup(ExampleGroup):
    """A group with the commands of COMMANDS, in the same order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which a new user needs them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            from topicfs.storage.messages import did_you_mean

            hint = "" if ctx.resilient_parsing else did_you_mean(cmd_name, COMMANDS)
            if hint:
                raise click.UsageError(f"No such command {cmd_name!r}{hint}", ctx)
            return None
        place, short_help = COMMANDS[cmd_name]
        module, attribute = place.split(":")
        command = getattr(importlib.import_module(f"topicfs.commands.{module}"), attribute)
        assert isinstance(command, click.Command)
        command.short_help = short_help
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help) for name, (_, short_help) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer options, and commands without importing them."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=short_help)
            for name, (_, short_help) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    examples="""
        topicfs mount ./data ./mnt  # ./data keeps the topics, ./mnt shows them
        mkdir mnt/orders  # a topic with one partition
        echo hello >> mnt/orders/0/log  # a record
        cat mnt/orders/0/log  # every record, one a line
        cat mnt/orders/0/0.json  # the record at offset 0 with all its metadata
        tail -f mnt/orders/0/log  # follow
        topicfs umount ./mnt  # the end
    """,
)
@click.version_option(package_name="topicfs", message="topicfs %(version)s")
@click.option("--debug", is_flag=True, envvar="TOPICFS_DEBUG", help="Show the traceback of an error.")
def cli(*, debug: bool) -> None:
    """Durable, Kafka-compatible topics as plain files.

    A mount shows topics as directories and records as lines. Without FUSE, `topicfs append` and `topicfs cat` do the
    same on the data directory. For examples of a command, see topicfs COMMAND --help.
    """
    import logging

    from topicfs.storage.messages import PrintableFormatter

    del debug
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("topicfs: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def describe(error: BaseException) -> str:
    """Return one line for people: the thing, the cause, and, if it is known, the remedy."""
    from topicfs.storage.errors import StorageError
    from topicfs.storage.messages import reason_of

    if isinstance(error, click.UsageError) and error.ctx is not None:
        message = " ".join(error.format_message().split()).rstrip(".")
        message = message.replace("valid integer range", "valid whole number")
        if isinstance(error, click.NoSuchOption) and error.ctx.parent is None:
            message += "; options of a command follow its name"
        return f"{message} (see `{error.ctx.command_path} --help`)"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, StorageError) or (isinstance(error, OSError) and error.strerror):
        return reason_of(error)
    return f"unexpected {type(error).__name__}: {error} (`topicfs --debug …` shows where)"


def status_of(error: BaseException) -> int:
    return MISUSE if isinstance(error, click.UsageError) else FAILURE


OFTEN, RARELY = gc.get_threshold(), (50_000, 10, 10)
"""Thresholds of the garbage collector: OFTEN for a mount, RARELY for any other command.

A command collects rarely, because most of its objects are imported modules, which stay in use.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit. If a shell has requested completion, answer the request instead."""
    if arguments is None and (asked := _answer_shell()) is not None:
        sys.exit(asked)
    keep_interrupts()
    gc.set_threshold(*RARELY)
    status = run(sys.argv[1:] if arguments is None else arguments)
    gc.freeze()  # Skip the garbage collection at exit; the system frees the memory anyway.
    sys.exit(status)


def _answer_shell() -> int | None:
    if "_TOPICFS_COMPLETE" not in os.environ:
        return None
    from topicfs.callers.completion import instructed

    return instructed(cli)


def run(arguments: Sequence[str], errors: TextIO | None = None) -> int:
    """Run the command; return its exit status."""
    try:
        return _invoke(arguments)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a person gets one line whatever happens
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            return SUCCESS  # The reader closed the pipe, like `| head`.
        return _failed(
            error, errors or sys.stderr, debug="--debug" in arguments[:1] or "TOPICFS_DEBUG" in os.environ
        )
    finally:
        _drop_unwritten(sys.stdout)
        _drop_unwritten(sys.stderr)


def _invoke(arguments: Sequence[str]) -> int:
    status = SUCCESS
    try:
        with cli.make_context("topicfs", list(arguments)) as context:
            cli.invoke(context)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        status = MISUSE
    if sys.stdout is not None:
        sys.stdout.flush()
    return status


def _failed(error: Exception, errors: TextIO | None, *, debug: bool) -> int:
    """Print the error to `errors`, and return the exit status. An error of this output is ignored."""
    from topicfs.lines import fitted
    from topicfs.storage.messages import printable

    if errors is not None:
        with suppress(OSError):
            if debug:
                import traceback

                traceback.print_exception(error, file=errors)
            click.echo(fitted(f"topicfs: {printable(describe(error))}", errors), file=errors)
    return status_of(error)


def _drop_unwritten(stream: TextIO | None) -> None:
    """Drop what cannot be written, for example because the terminal is gone. Otherwise Python exits with status 120."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


INTERRUPT_RETRY_SECONDS = 0.01
"""Delay before the interrupt is raised again. By then the finalizer that dropped it has ended."""


def keep_interrupts() -> None:
    """From now on, raise a KeyboardInterrupt again if Python has dropped it. Uses SIGALRM.

    KeyboardInterrupt is raised wherever the main thread happens to be. In a finalizer or in a callback of compiled
    code it cannot be caught: Python prints it as an ignored exception, and the program goes on.
    """
    signal.signal(signal.SIGALRM, _interrupt)
    sys.unraisablehook = _told


def _told(unraisable: sys.UnraisableHookArgs) -> None:
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        # Do not raise the interrupt again right now, because it would be raised in this function.
        signal.setitimer(signal.ITIMER_REAL, INTERRUPT_RETRY_SECONDS)
    else:
        sys.__unraisablehook__(unraisable)


def _interrupt(_number: int, _frame: object) -> None:
    """Call the present handler of SIGINT, which may belong to an event loop."""
    signal.raise_signal(signal.SIGINT)
