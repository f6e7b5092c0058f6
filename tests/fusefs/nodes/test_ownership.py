"""The owner and the mode of files in a mount."""

from __future__ import annotations

import stat

import pytest

from topicfs.fusefs.nodes.nodes import CONSUMING_MODE, DIRECTORY_MODE, LINK_MODE, LOG_MODE, READ_MODE
from topicfs.fusefs.nodes.ownership import USUAL_UMASK, Ownership, shown_mode

MODES = (DIRECTORY_MODE, LOG_MODE, READ_MODE, LINK_MODE)


@pytest.mark.parametrize(
    ("umask", "shown"),
    [
        (0o000, ("drwxrwxrwx", "-rw-rw-rw-", "-r--r--r--", "lrwxrwxrwx")),
        (0o002, ("drwxrwxr-x", "-rw-rw-r--", "-r--r--r--", "lrwxrwxrwx")),
        (USUAL_UMASK, ("drwxr-xr-x", "-rw-r--r--", "-r--r--r--", "lrwxrwxrwx")),
        (0o027, ("drwxr-x---", "-rw-r-----", "-r--r-----", "lrwxrwxrwx")),
        (0o077, ("drwx------", "-rw-------", "-r--------", "lrwxrwxrwx")),
        (0o777, ("d---------", "----------", "----------", "lrwxrwxrwx")),
    ],
)
def test_the_umask_removes_permissions_of_group_and_others(umask: int, shown: tuple[str, ...]):
    """The umask removes permissions from directories and files, not from links; read-only files stay read-only."""
    assert shown == tuple(stat.filemode(shown_mode(mode, umask)) for mode in MODES)


@pytest.mark.parametrize(
    ("umask", "shown"),
    [
        (0o000, "-rw-rw-rw-"),
        (0o002, "-rw-rw----"),
        (USUAL_UMASK, "-rw-------"),
        (0o077, "-rw-------"),
        (0o026, "-rw-------"),
        (0o060, "-rw----rw-"),
        (0o777, "----------"),
    ],
)
def test_users_who_may_not_write_cannot_consume(umask: int, shown: str):
    """Only users who may write can read files that consume records, because reading changes the group."""
    assert shown == stat.filemode(shown_mode(CONSUMING_MODE, umask))


def test_the_default_umask_is_the_usual_one():
    """By default the umask is USUAL_UMASK."""
    assert USUAL_UMASK == Ownership.of_process().umask
