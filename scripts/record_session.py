"""Records a session: `python scripts/record_session.py docs/session.svg` types it on a real mount and draws the output.

The same output gives the same bytes, so that a test can compare the picture with a new one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import IO

SESSION = (
    "# a topic is a directory, a record is a line",
    "mkdir mnt/orders",
    'echo "one apple" >> mnt/orders/0/log',
    "printf 'anna\\ttwo pears\\nbert\\tthree figs\\n' >> mnt/orders/0/log.kv",
    "grep -n pear mnt/orders/0/log",
    "# records by offset and by time, as text or as JSON",
    "cat mnt/orders/0/1-2.kv",
    "cat mnt/orders/0/@2026-01-01T00:00:00Z",
    "jq --compact-output '[.offset, .key, .payload]' mnt/orders/0/2.json",
    "# follow a topic while another program appends",
    "tail -n 1 -f mnt/orders/0/log &",
    'echo "four plums" >> mnt/orders/0/log',
    "# on disk: the files that a Kafka broker writes",
    "ls data/orders-0/*.log",
)
FOLLOWED = SESSION[10:12]
"""Commands after which the `tail` in the background prints a line."""
SHELL = ["bash", "--norc", "-s"]
END = "\x04"
MARGIN, LINE_HEIGHT, CHARACTER_WIDTH, COLUMNS = 16, 20, 8.43, 76
HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" \
role="img" aria-label="A session on a mount">
<style>
text {{ font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre; fill: #d0d7de }}
.typed {{ fill: #ffffff; font-weight: 600 }}
.note {{ fill: #7ee787 }}
</style>
<rect width="100%" height="100%" rx="8" fill="#161b22"/>
"""


def main() -> None:
    """Write the picture to the file named on the command line."""
    (target,) = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, mounted(Path(folder)):
        Path(target).write_text(picture(play(Path(folder))))


@contextmanager
def mounted(folder: Path) -> Iterator[None]:
    """Mount `folder`/data at `folder`/mnt with the topicfs command of this Python."""
    (folder / "mnt").mkdir()
    command = [sys.executable, "-c", "from topicfs.main import main; main()"]
    subprocess.run([*command, "mount", "data", "mnt"], cwd=folder, check=True)
    try:
        yield
    finally:
        subprocess.run([*command, "umount", "mnt"], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def play(folder: Path) -> Iterator[str]:
    """Type the session into one shell; yield its lines, with a `$` before the typed ones."""
    with subprocess.Popen(
        SHELL,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        for line in SESSION:
            yield line if line.startswith("#") else f"$ {line}"
            shell.stdin.write(f"{line}\nprintf '\\n{END}\\n'\n")
            shell.stdin.flush()
            yield from printed(shell.stdout, awaited=1 if line in FOLLOWED else 0)
        shell.stdin.write("kill %1\n")
        shell.stdin.close()


def printed(output: IO[str], *, awaited: int) -> Iterator[str]:
    """Yield a command's output, and `awaited` lines from the program in the background."""
    ended = False
    for line in output:
        text = line.rstrip("\n").expandtabs()
        if text == END:
            ended = True
        elif text:
            awaited -= 1
            yield text
        if ended and awaited <= 0:
            break


def picture(lines: Iterable[str]) -> str:
    """Draw the lines as SVG."""
    shown = []
    for number, line in enumerate(lines):
        kind = ' class="typed"' if line.startswith("$ ") else ' class="note"' if line.startswith("#") else ""
        y = MARGIN + LINE_HEIGHT * number + 14
        shown.append(f'<text x="{MARGIN}" y="{y}"{kind}>{escape(line, quote=False)}</text>\n')
    width = round(2 * MARGIN + COLUMNS * CHARACTER_WIDTH)
    height = 2 * MARGIN + LINE_HEIGHT * len(shown)
    return HEAD.format(width=width, height=height) + "".join(shown) + "</svg>\n"


if __name__ == "__main__":
    main()
