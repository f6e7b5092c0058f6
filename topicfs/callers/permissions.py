"""Users, groups and masks of permissions, as a command line spells them."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Callable

import click

_LARGEST_ID = 2**32 - 2
"""The number after it means "as it is" to chown(2)."""
_PERMISSIONS = 0o777


class _Account(click.ParamType):  # type: ignore[type-arg] # generic in newer releases alone
    """An account of the system, by name or number."""

    def __init__(self, name: str, number_of: Callable[[str], int]) -> None:
        self.name = name
        self._number_of = number_of

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return its number."""
        if value.isascii() and value.isdigit():
            if int(value) > _LARGEST_ID:
                self.fail(f"{value}: no {self.name} has a number above {_LARGEST_ID}", param, ctx)
            return int(value)
        try:
            return self._number_of(value)
        except (KeyError, ValueError):
            self.fail(
                f"{value or repr(value)}: no such {self.name} on this machine; give another name, or a number",
                param,
                ctx,
            )


class _Mask(click.ParamType):  # type: ignore[type-arg] # as above
    """Permissions in octal digits, those of the owner, the group and others."""

    name = "mask"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return it as a number."""
        try:
            mask = int(value, 8)
        except ValueError:
            mask = -1
        if not 0 <= mask <= _PERMISSIONS:
            self.fail(f"{value}: is not a mask of permissions in octal digits, such as 022", param, ctx)
        return mask


USER = _Account("user", lambda name: pwd.getpwnam(name).pw_uid)
GROUP = _Account("group", lambda name: grp.getgrnam(name).gr_gid)
UMASK = _Mask()
