"""`mount.topicfs` translates the arguments of mount(8) for `topicfs mount`."""

from __future__ import annotations

import pytest

from topicfs.callers import mount_helper
from topicfs.callers.mount_helper import OptionError, helped, mount_words


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["data", "mnt", "-o", "rw"], ["--", "data", "mnt"]),
        (["/a,/b", "mnt", "-o", "ro,replicas=2"], ["--read-only", "--replicas=2", "--", "/a,/b", "mnt"]),
        (["data", "mnt", "-n", "-v", "-o", "acks=all,allow_other"], ["--acks=all", "--allow-other", "--", "data", "mnt"]),
        (["data", "mnt", "-o", "allow-delete,linger_ms=5"], ["--allow-delete", "--linger-ms=5", "--", "data", "mnt"]),
        (["-o", "ro", "-t", "topicfs", "data", "mnt"], ["--read-only", "--", "data", "mnt"]),
        (["data", "mnt", "-o", "without=/a,without=/b"], ["--without=/a", "--without=/b", "--", "data", "mnt"]),
        (
            ["kafka://host:9092", "mnt", "-o", "rw,noauto,user,noexec,nosuid,nodev,_netdev,cache=/c,x-systemd.automount"],
            ["--cache=/c", "--", "kafka://host:9092", "mnt"],
        ),
        (["data", "mnt", "-o", "defaults,nofail,noatime,comment=a log,,"], ["--", "data", "mnt"]),
        (["data", "mnt", "-o", "rw,noexec,user=me,uhelper=hal"], ["--", "data", "mnt"]),
        (["data", "mnt", "-s", "-o", "nosuch=1,acks=1"], ["--acks=1", "--", "data", "mnt"]),
    ],
)  # fmt: skip
def test_options_of_mount_become_those_of_the_command(arguments: list[str], expected: list[str]) -> None:
    """Options may be written with `-` or `_` and are translated; options for mount(8) itself are dropped."""
    assert ["mount", *expected] == mount_words(arguments)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("nosuch", "nosuch: not an option of a mount; the options are acks, advertise, allow-delete"),
        ("acks", "acks: takes a value, as in acks=…"),
        ("acks=", "acks=: takes a value"),
        ("allow_other=yes", "allow_other=yes: takes no value"),
        ("foreground", "foreground: not an option of a mount"),
        ("remount,ro", "remount: not an option of a mount"),
        ("\x1b[2J\nforged", r"\x1b[2J\nforged: not an option of a mount"),
    ],
)
def test_an_unknown_option_is_one_line_of_error(
    options: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """For an unknown option one line of error is printed, with mount(8)'s exit status for wrong usage."""
    assert 1 == helped(["data", "mnt", "-o", options])
    output, errors = capsys.readouterr()
    assert "" == output
    assert errors.startswith(f"mount.topicfs: {reason}")
    assert 1 == errors.count("\n")


def test_a_flag_that_mount_does_not_give_is_refused() -> None:
    """An argument that mount(8) never passes is refused with a message that says how to call mount."""
    with pytest.raises(OptionError, match="mount -t topicfs"):
        mount_words(["data", "mnt", "--read-only"])


def test_a_mount_that_is_only_tried_does_nothing() -> None:
    """`mount -f` checks the options but mounts nothing."""
    assert 0 == helped(["data", "nowhere", "-f", "-o", "ro"])
    assert 1 == helped(["data", "nowhere", "-f", "-o", "nosuch"])


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (1, 32), (2, 1), (130, 32)])
def test_statuses_are_those_of_mount(status: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit statuses are those of mount(8): 1 for wrong usage, 32 for a failed mount."""
    monkeypatch.setattr(mount_helper, "run", lambda words: status)
    assert expected == helped(["data", "mnt"])
