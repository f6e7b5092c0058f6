"""Every manual page: one for the command, one for each sub-command, and one for `mount.topicfs`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from topicfs.callers.mount_helper import MOUNT_FAILED, WRONG_CALL, mount_options
from topicfs.examples import Example, ExampleCommand, ExampleGroup
from topicfs.main import FAILURE, INTERRUPTED, MISUSE, SUCCESS, cli
from topicfs.manual.page import Page, Reference, Term

STATUSES = (
    Term(str(SUCCESS), "", "Done."),
    Term(
        str(FAILURE),
        "",
        "Not done, or something was found: one line on standard error says what, and what helps.",
    ),
    Term(str(MISUSE), "", "The command line was not understood."),
    Term(str(INTERRUPTED), "", "Ended by Ctrl-C."),
)
FILES = {
    "topicfs": (
        Term("./data", "", "The data directory where neither `--data` nor TOPICFS_DATA names another."),
        Term("~/.cache/topicfs", "", "What can be made again: positions in views, jars that were fetched."),
    ),
    "topicfs-mount": (
        Term("/etc/fuse.conf", "", "`user_allow_other` there lets users other than root give --allow-other."),
        Term("/etc/topicfs/NAME.conf", "", "What the unit `topicfs@NAME` of systemd mounts, and where."),
        Term(
            "DIR/TOPIC-N/",
            "",
            "A partition: segments, indexes and checkpoints, as an Apache Kafka broker keeps them.",
        ),
    ),
}
"""By page."""
RELATED = {
    "topicfs": (Reference("mount.topicfs", 8),),
    "topicfs-mount": (
        Reference("topicfs-umount", 1),
        Reference("mount.topicfs", 8),
        Reference("fusermount3", 1),
    ),
    "topicfs-umount": (Reference("topicfs-mount", 1), Reference("umount", 8)),
}
"""Pages to go on with, beside those above and below a page, by page."""
MOUNTED = (
    """Mounts the topics of a data directory, of several, or of a Kafka cluster, as `topicfs mount` does, and returns when
    the mount stands.""",
    """mount(8) calls it for the type topicfs. Options that are mount's own are left to it: `noauto`, `user`, `_netdev`,
    `nofail`, `x-systemd.automount` and their like. umount(8) ends the mount, but does not wait until everything is on disk,
    as `topicfs umount` does.""",
)
FSTAB = (
    Example(
        "mount -t topicfs /var/lib/topicfs/orders /srv/orders -o acks=all,allow-other",
        "From a shell, as root.",
    ),
    Example(
        "/var/lib/topicfs/orders /srv/orders topicfs acks=all,allow-other,noauto,x-systemd.automount 0 0",
        "A line of fstab(5): mounted when a program first looks.",
    ),
    Example(
        "kafka://one:9092 /srv/cluster topicfs ro,allow-other,_netdev,nofail,client-config=/etc/topicfs/client 0 0",
        "A cluster, once there is a network.",
    ),
)


def pages() -> Iterator[Page]:
    """Yield every page, a group's before those of its commands."""
    yield from _below(cli, click.Context(cli, info_name="topicfs", **cli.context_settings))
    yield _of_the_mount_helper()


def _below(command: click.Command, context: click.Context) -> Iterator[Page]:
    children = dict(_children(command, context))
    yield _page(command, context, children)
    for name, child in children.items():
        yield from _below(child, click.Context(child, context, name, **child.context_settings))


def _children(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        assert isinstance(command, click.Group)
        child = command.get_command(context, name)
        assert child is not None
        if not child.hidden:
            yield name, child


def _page(command: click.Command, context: click.Context, children: dict[str, click.Command]) -> Page:
    reference = _reference(context)
    assert isinstance(command, ExampleCommand | ExampleGroup), reference
    name, parent = reference.name, context.parent
    below = {Reference(f"{name}-{word}", 1): child for word, child in children.items()}
    return Page(
        reference=reference,
        summary=_summary(command),
        usages=((context.command_path, " ".join(command.collect_usage_pieces(context))),),
        description=tuple((command.help or "").split("\n\n")),
        commands=tuple((one, f"{_summary(child)}.") for one, child in below.items()),
        options=tuple(_options(command, context)),
        examples=command.examples,
        statuses=STATUSES,
        variables=tuple(_variables(command)),
        files=FILES.get(name, ()),
        related=(*([_reference(parent)] if parent else []), *RELATED.get(name, ()), *below),
    )


def _reference(context: click.Context) -> Reference:
    return Reference(context.command_path.replace(" ", "-"), 1)


def _summary(command: click.Command) -> str:
    return command.get_short_help_str(limit=200).rstrip(".")


def _options(command: click.Command, context: click.Context) -> Iterator[Term]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            words = record[0].split(" ")
            names = [word for word in words if word.startswith("-")]
            yield Term(" ".join(names), " ".join(words[len(names) :]), record[1])


def _variables(command: click.Command) -> Iterator[Term]:
    for parameter in command.params:
        for variable in [parameter.envvar] if isinstance(parameter.envvar, str) else ():
            name = (
                parameter.opts[-1] if isinstance(parameter, click.Option) else parameter.human_readable_name
            )
            yield Term(variable, "", f"Stands in for {name} where that is not given.")


def _of_the_mount_helper() -> Page:
    """Return mount.topicfs(8), whose options are those of `topicfs mount`."""
    return Page(
        reference=Reference("mount.topicfs", 8),
        summary="Mount topics by mount(8) and fstab(5)",
        usages=(
            ("mount -t topicfs", "DIR[,DIR]|kafka://HOST:PORT MOUNTPOINT [-o OPTION[,OPTION]…]"),
            ("mount.topicfs", "DIR[,DIR]|kafka://HOST:PORT MOUNTPOINT [-sfnv] [-o OPTION[,OPTION]…]"),
        ),
        description=MOUNTED,
        options=tuple(_mount_options()),
        examples=FSTAB,
        statuses=(
            Term(str(SUCCESS), "", "The mount stands."),
            Term(
                str(WRONG_CALL), "", "The call was not understood, for example an option that no mount has."
            ),
            Term(str(MOUNT_FAILED), "", "The mount failed: one line on standard error says why."),
        ),
        files=(
            Term("/etc/fstab", "", "Mounts of the type topicfs, beside those of other types."),
            *FILES["topicfs-mount"],
        ),
        related=(
            Reference("topicfs-mount", 1),
            Reference("topicfs-umount", 1),
            Reference("fstab", 5),
            Reference("mount", 8),
            Reference("umount", 8),
        ),
    )


def _mount_options() -> Iterator[Term]:
    context = click.Context(click.Command("mount"))
    yield Term("ro", "", "The same as `read-only`.")
    for name, option in mount_options().items():
        record = option.get_help_record(context)
        assert record is not None
        value = "" if option.is_flag else "=" + record[0].rpartition(" ")[2]
        yield Term(name, value, record[1])
