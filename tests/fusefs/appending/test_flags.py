"""The flags with which a program may open a file for writing."""

from __future__ import annotations

import errno
import os

import pytest

from topicfs.fusefs.appending.flags import access_of, check_append
from topicfs.fusefs.errors import FileError


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(os.O_WRONLY | os.O_APPEND, id=">>"),
        pytest.param(os.O_WRONLY | os.O_TRUNC, id=">"),
        pytest.param(os.O_RDWR | os.O_APPEND, id="python a+"),
        pytest.param(os.O_RDWR | os.O_TRUNC, id="python w+"),
    ],
)
def test_programs_that_add_may_open_a_log(flags: int):
    """A program can open `log` for writing if it sets O_APPEND or O_TRUNC.

    The redirections of the shell, tee, cp, dd and Python set at least one of these flags.
    """
    check_append(access_of(flags), truncation_accepted=True)


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT])
def test_rewriters_may_not(flags: int):
    """Opening `log` for writing without O_APPEND and O_TRUNC fails with EPERM.

    Vim and `sort -o` open a file in this way to rewrite the file.
    """
    with pytest.raises(FileError) as caught:
        check_append(access_of(flags), truncation_accepted=True)

    assert caught.value.number == errno.EPERM


def test_files_other_than_log_need_o_append():
    """Files other than `log` can be opened only with O_APPEND, so that `cp -r` of a topic appends each record once."""
    with pytest.raises(FileError) as caught:
        check_append(access_of(os.O_WRONLY | os.O_TRUNC), truncation_accepted=False)

    assert caught.value.number == errno.EPERM


@pytest.mark.parametrize("flag", [os.O_SYNC, os.O_DSYNC])
def test_synchronous_descriptors_are_durable(flag: int):
    """O_SYNC or O_DSYNC at open(2) makes the handle durable, because the kernel sends no FSYNC for such files."""
    assert access_of(os.O_WRONLY | os.O_APPEND | flag).durable
    assert not access_of(os.O_WRONLY | os.O_APPEND).durable


def test_the_three_access_modes_are_distinguished():
    """O_RDONLY, O_WRONLY and O_RDWR are distinguished, although O_RDONLY is 0."""
    seen = [(access_of(mode).reads, access_of(mode).writes) for mode in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR)]

    assert [(True, False), (False, True), (True, True)] == seen
