"""Unmounts the mounts that a test run leaves. This is a separate process, so it works even if the run is killed.

`python -m testing.leftover_mounts FOLDER` waits for the end of its standard input, unmounts everything below the
folder, and prints the mountpoints.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unmounted_in_the_end(folder: Path) -> Iterator[None]:
    """Unmount everything below a folder when this process ends.

    A mount that is left at the end of the `with` block fails the test.
    """
    command = [sys.executable, "-m", "testing.leftover_mounts", str(folder)]
    # In a session of its own, so that ^C and signals to the process group do not end it too early.
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as sweeper:
        yield
        left, _ = sweeper.communicate()
    assert not left, f"still mounted at the end of the run, and unmounted now:\n{left}"


def mounts_under(folder: str) -> list[str]:
    """Return the mountpoints below a folder, the most recent first."""
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
