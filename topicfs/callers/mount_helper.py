"""`mount.topicfs`: what mount(8) runs for `mount -t topicfs DIR MOUNTPOINT -o acks=all,ro`, and for a line of fstab(5).

The options after -o are the options of `topicfs mount` without their dashes, written with `-` or `_`. mount's own
options are also accepted: `ro` and `rw` have their meaning; `noauto`, `user`, `_netdev`, `x-systemd.automount` and
similar options only say when to mount, and are ignored.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

import click

from topicfs.commands.mount import mount
from topicfs.main import FAILURE, MISUSE, SUCCESS, run
from topicfs.storage.messages import printable

WRONG_CALL, MOUNT_FAILED = 1, 32
"""Exit statuses of mount(8)."""
_MOUNTS_OWN = re.compile(
    r"rw|defaults|auto|noauto|users?(=.*)?|nousers?|owner|group|uhelper=.*|nofail|_netdev|silent|loud"
    r"|(no)?(exec|suid|dev|atime|diratime|relatime|strictatime|lazytime|iversion|mand)|a?sync|dirsync"
    r"|comment=.*|[xX]-.*|nosymfollow"
)
_NOT_OPTIONS = frozenset({"foreground", "help"})
"""Options of `topicfs mount` that are not allowed after -o.

A mount through mount(8) always goes to the background, because mount(8) waits for its helper to end.
"""


class OptionError(ValueError):
    """The option after -o does not exist."""


def main() -> None:
    """Run as a helper of mount(8): SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS] [-t TYPE], in any order."""
    sys.exit(helped(sys.argv[1:]))


def helped(arguments: Sequence[str]) -> int:
    """Mount; return an exit status of mount(8)."""
    try:
        words = mount_words(arguments)
    except OptionError as error:
        print(f"mount.topicfs: {printable(str(error))}", file=sys.stderr)  # noqa: T201 - as every command does
        return WRONG_CALL
    if words is None:
        return SUCCESS
    return {SUCCESS: SUCCESS, MISUSE: WRONG_CALL, FAILURE: MOUNT_FAILED}.get(run(words), MOUNT_FAILED)


def mount_words(arguments: Sequence[str]) -> list[str] | None:
    """Return `topicfs`'s arguments for a call of mount(8); None if it mounts nothing (-f). Raises OptionError."""
    places: list[str] = []
    given: list[str] = []
    flags = ""
    left = iter(arguments)
    for word in left:
        if word in ("-o", "-t", "-N"):
            value = next(left, "")
            if word == "-o":
                given += value.split(",")
        elif word.startswith("-") and set(word[1:]) <= set("sfnvw"):
            flags += word[1:]
        elif word.startswith("-"):
            raise OptionError(f"{word}: not an option of mount(8); use mount -t topicfs DIR MOUNTPOINT -o …")
        else:
            places.append(word)
    words = list(_options([option for option in given if option], sloppy="s" in flags))
    return None if "f" in flags else ["mount", *words, "--", *places]


def mount_options() -> dict[str, click.Option]:
    """Return the options of `topicfs mount` that are allowed after -o, by name without dashes."""
    return {
        name.removeprefix("--"): option
        for option in mount.params
        if isinstance(option, click.Option) and option.name not in _NOT_OPTIONS
        for name in option.opts
        if name.startswith("--")
    }


def _options(given: Sequence[str], *, sloppy: bool) -> Iterator[str]:
    known = mount_options()
    for text in given:
        name, equals, value = text.partition("=")
        option = known.get({"ro": "read-only"}.get(name, name.replace("_", "-")))
        if option is not None:
            yield _word(text, option, value if equals else None)
        elif not (sloppy or _MOUNTS_OWN.fullmatch(text)):
            raise OptionError(f"{text}: not an option of a mount; the options are {', '.join(sorted(known))}")


def _word(text: str, option: click.Option, value: str | None) -> str:
    name = next(name for name in option.opts if name.startswith("--"))
    if option.is_flag and value is None:
        return name
    if option.is_flag or not value:
        raise OptionError(
            f"{text}: {'takes no value' if option.is_flag else f'takes a value, as in {name[2:]}=…'}"
        )
    return f"{name}={value}"
