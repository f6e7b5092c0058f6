"""`topicfs manual`: writes the manual pages, as files for man(1)."""

from __future__ import annotations

import importlib.metadata
import os
import re
import textwrap
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import click

from topicfs.callers import completion
from topicfs.callers.mount_helper import MOUNT_FAILED, WRONG_CALL, mount_options
from topicfs.examples import ExampleCommand, ExampleGroup
from topicfs.lines import say
from topicfs.main import FAILURE, INTERRUPTED, MISUSE, SUCCESS, cli

Term: TypeAlias = tuple[str, str, str]
"""Literal text (`--data`), placeholder (`DIR`, `=DIR`, or empty), and explanation."""

STATUSES: tuple[Term, ...] = (
    (str(SUCCESS), "", "Done."),
    (
        str(FAILURE),
        "",
        "Failure, or something was found: one line on standard error says what, with a remedy.",
    ),
    (str(MISUSE), "", "Usage error."),
    (str(INTERRUPTED), "", "Ended by Ctrl-C."),
)
MOUNT_STATUSES: tuple[Term, ...] = (
    (str(SUCCESS), "", "The mount is ready."),
    (str(WRONG_CALL), "", "Usage error, for example an unknown mount option."),
    (str(MOUNT_FAILED), "", "The mount failed: one line on standard error says why."),
)
FILES: dict[str, tuple[Term, ...]] = {
    "topicfs": (
        ("./data", "", "The default data directory, without `--data` and TOPICFS_DATA."),
        ("~/.cache/topicfs", "", "Caches: positions in views, fetched jars."),
    ),
    "topicfs-mount": (
        ("/etc/fuse.conf", "", "`user_allow_other` there lets users other than root give --allow-other."),
        ("/etc/topicfs/NAME.conf", "", "Settings of the systemd unit `topicfs@NAME`: source and mountpoint."),
        (
            "DIR/TOPIC-N/",
            "",
            "A partition: segments, indexes and checkpoints, as an Apache Kafka broker keeps them.",
        ),
    ),
}
FSTAB_FILE: Term = ("/etc/fstab", "", "Mounts of the type topicfs, beside those of other types.")
RELATED = {
    "topicfs": ("mount.topicfs(8)",),
    "topicfs-mount": ("topicfs-umount(1)", "mount.topicfs(8)", "fusermount3(1)"),
    "topicfs-umount": ("topicfs-mount(1)", "umount(8)"),
    "mount.topicfs": ("topicfs-mount(1)", "topicfs-umount(1)", "fstab(5)", "mount(8)", "umount(8)"),
}
"""For each page, the related pages for SEE ALSO, besides parent and child pages."""
MOUNT_USAGES = (
    ("mount -t topicfs", "DIR[,DIR]|kafka://HOST:PORT MOUNTPOINT [-o OPTION[,OPTION]…]"),
    ("mount.topicfs", "DIR[,DIR]|kafka://HOST:PORT MOUNTPOINT [-sfnv] [-o OPTION[,OPTION]…]"),
)
MOUNTED = """\
Mounts the topics of a data directory, of several, or of a Kafka cluster, as `topicfs mount` does, and returns when
the mount is ready.

mount(8) calls it for the type topicfs. mount's own options are left to it: `noauto`, `user`, `_netdev`,
`nofail`, `x-systemd.automount` and their like. umount(8) ends the mount, but does not wait until everything is on disk,
as `topicfs umount` does."""
FSTAB: tuple[tuple[str, str], ...] = (
    (
        "mount -t topicfs /var/lib/topicfs/orders /srv/orders -o acks=all,allow-other",
        "From a shell, as root.",
    ),
    (
        "/var/lib/topicfs/orders /srv/orders topicfs acks=all,allow-other,noauto,x-systemd.automount 0 0",
        "A line of fstab(5): mounted on first access.",
    ),
    (
        "kafka://one:9092 /srv/cluster topicfs ro,allow-other,_netdev,nofail,client-config=/etc/topicfs/client 0 0",
        "A cluster, mounted once the network is up.",
    ),
)

_WIDTH = 78
"""Columns of a source line; mandoc's checks require fewer than 80."""
_LITERAL = re.compile(r"`([^`]+)`")
_ESCAPES = str.maketrans(
    {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti", '"': "\\(dq"}
)
"""Escapes for characters that man would replace by typographic characters, which shells reject (groff_char(7))."""


def pages(*, version: str, day: datetime) -> Iterator[tuple[str, str]]:
    """Yield each page's path in a folder of MANPATH, `man1/topicfs-cat.1`, and its source."""
    footer = f'"{day.astimezone(UTC):%Y-%m-%d}" "topicfs {_escaped(version)}"'
    root = click.Context(cli, info_name="topicfs", **cli.context_settings)
    for context in _with_those_below(root):
        name = _page_name(context)
        yield f"man1/{name}.1", page(name, 1, footer, *_of_a_command(name, context))
    yield "man8/mount.topicfs.8", page("mount.topicfs", 8, footer, *_of_the_mount_helper())


def page(
    name: str, section: int, footer: str, summary: str, parts: Iterable[tuple[str, Iterable[str]]]
) -> str:
    """Return the roff source of a page, without empty sections."""
    # Do not hyphenate literal words, and do not justify lines.
    lines = [f'.TH "{_escaped(name.upper())}" {section} {footer}', ".nh", ".ad l"]
    lines += [".SH NAME", f"{_escaped(name)} \\-", *paragraphs(summary)]
    for title, part in parts:
        found = list(part)
        lines += [f".SH {title}", *found] if found else []
    return "\n".join(lines) + "\n"


def paragraphs(text: str) -> Iterator[str]:
    """Yield the roff source of a text. Blank lines separate paragraphs; text between backticks becomes bold."""
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        halves = _LITERAL.split(" ".join(paragraph.split()))
        found = "".join(
            f"\\fB{_escaped(half)}\\fR" if at % 2 else _escaped(half) for at, half in enumerate(halves)
        )
        for line in textwrap.wrap(found, _WIDTH, break_long_words=False, break_on_hyphens=False):
            yield f"\\&{line}" if line.startswith(".") else line


def terms(listed: Iterable[Term]) -> Iterator[str]:
    for typed, value, text in listed:
        yield ".TP"
        yield _typed(typed, value)
        yield from paragraphs(text)


def _of_a_command(name: str, context: click.Context) -> tuple[str, list[tuple[str, Iterable[str]]]]:
    command, parent = context.command, context.parent
    assert isinstance(command, ExampleCommand | ExampleGroup), name
    below = {f"{name}-{word}(1)": child for word, child in _children(command, context)}
    related = (*([f"{_page_name(parent)}(1)"] if parent else []), *RELATED.get(name, ()), *below)
    return _summary(command), [
        ("SYNOPSIS", [_typed(context.command_path, " ".join(command.collect_usage_pieces(context)))]),
        ("DESCRIPTION", paragraphs(command.help or "")),
        (
            "COMMANDS",
            (
                line
                for one, child in below.items()
                for line in (".TP", _reference(one), *paragraphs(f"{_summary(child)}."))
            ),
        ),
        ("OPTIONS", terms(_options(command, context))),
        ("EXIT STATUS", terms(STATUSES)),
        ("ENVIRONMENT", terms(_variables(command))),
        ("FILES", terms(FILES.get(name, ()))),
        ("EXAMPLES", terms((line, "", meaning) for line, meaning in command.examples)),
        ("SEE ALSO", _references(related)),
    ]


def _of_the_mount_helper() -> tuple[str, list[tuple[str, Iterable[str]]]]:
    """Return mount.topicfs(8), which has the options of `topicfs mount`."""
    first, second = MOUNT_USAGES
    return "Mount topics by mount(8) and fstab(5)", [
        ("SYNOPSIS", [_typed(*first), ".br", _typed(*second)]),
        ("DESCRIPTION", paragraphs(MOUNTED)),
        ("OPTIONS", terms(_mount_options())),
        ("EXIT STATUS", terms(MOUNT_STATUSES)),
        ("FILES", terms((FSTAB_FILE, *FILES["topicfs-mount"]))),
        ("EXAMPLES", terms((line, "", meaning) for line, meaning in FSTAB)),
        ("SEE ALSO", _references(RELATED["mount.topicfs"])),
    ]


def _with_those_below(context: click.Context) -> Iterator[click.Context]:
    yield context
    for name, child in _children(context.command, context):
        yield from _with_those_below(click.Context(child, context, name, **child.context_settings))


def _children(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            if not child.hidden:
                yield name, child


def _page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _summary(command: click.Command) -> str:
    return command.get_short_help_str(limit=200).rstrip(".")


def _options(command: click.Command, context: click.Context) -> Iterator[Term]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            words = record[0].split(" ")
            names = [word for word in words if word.startswith("-")]
            yield " ".join(names), " ".join(words[len(names) :]), record[1]


def _mount_options() -> Iterator[Term]:
    context = click.Context(click.Command("mount"))
    yield "ro", "", "The same as `read-only`."
    for name, option in mount_options().items():
        record = option.get_help_record(context)
        assert record is not None
        yield name, "" if option.is_flag else "=" + record[0].rpartition(" ")[2], record[1]


def _variables(command: click.Command) -> Iterator[Term]:
    for parameter in command.params:
        if isinstance(parameter.envvar, str):
            name = (
                parameter.opts[-1] if isinstance(parameter, click.Option) else parameter.human_readable_name
            )
            yield parameter.envvar, "", f"The default for {name}."


def _references(names: Iterable[str]) -> Iterator[str]:
    listed = list(names)
    for number, name in enumerate(listed, 1):
        yield _reference(name) + (" ," if number < len(listed) else "")


def _reference(name: str) -> str:
    return f".BR {_escaped(name).replace('(', ' (')}"


def _typed(typed: str, value: str) -> str:
    """Return a line of roff: literal words are bold, placeholders are italic."""
    gap = "" if value.startswith("=") else " "
    return f"\\fB{_escaped(typed)}\\fR" + (f"{gap}\\fI{_escaped(value)}\\fR" if value else "")


def _escaped(text: str) -> str:
    return "".join(
        letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in text.translate(_ESCAPES)
    )


@click.command(
    cls=ExampleCommand,
    examples="""
        topicfs manual ~/.local/share/man  # for oneself: then man topicfs, man topicfs-cat, man mount.topicfs
        topicfs manual /usr/local/share/man  # for everybody, as root
    """,
)
@click.argument(
    "directory", metavar="DIR", type=click.Path(path_type=Path), shell_complete=completion.directory_option
)
def manual(directory: Path) -> None:
    """Write a page for each command, and mount.topicfs(8), into man1 and man8 below DIR.

    Distribution packages contain the pages; this command is for an installation by pip.
    """
    version = importlib.metadata.version("topicfs")
    # https://reproducible-builds.org/specs/source-date-epoch/
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    day = datetime.now(UTC) if epoch is None else datetime.fromtimestamp(int(epoch), UTC)
    every_page = list(pages(version=version, day=day))
    for name, source in every_page:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    say(f"{len(every_page)} pages in {directory}")
