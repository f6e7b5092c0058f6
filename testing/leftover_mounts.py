"""Mounts that a run of tests leaves: unmounted by a process of its own, so that it works after kill -9, too.

`python -m testing.leftover_mounts FOLDER` waits for the end of its standard input, unmounts whatever is mounted under the
folder, and names it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unmounted_in_the_end(folder: Path) -> Iterator[None]:
    """Unmount everything under a folder once this process has ended. If the block ends first, a mount is an AssertionError."""
    command = [sys.executable, "-m", "testing.leftover_mounts", str(folder)]
    # A session of its own: ^C and signals to the whole group do not end it before its work.
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as sweeper:
        yield
        left, _ = sweeper.communicate()
    assert not left, f"still mounted at the end of the run, and unmounted now:\n{left}"


def mounts_under(folder: str) -> list[str]:
    """Return the mountpoints under a folder, the latest first."""
    table = Path("/proc/self/mountinfo").read_text().splitlines()
    paths = [line.split(" ")[4].encode().decode("unicode_escape") for line in table]
    return [path for path in reversed(paths) if path.startswith(f"{folder}/")]


def main(folder: str) -> None:
    sys.stdin.read()
    for path in mounts_under(folder):
        subprocess.run(["umount", "--lazy", path], check=False)
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
