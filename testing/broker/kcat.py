"""A consumer through kcat, the second client: Debian's, as a user of a shell has it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

TIMEOUT_SECONDS = 60


def consume_lines(
    bootstrap_server: str, topic: str, *, partition: int = 0, start: str = "beginning"
) -> list[str]:
    """Read to the end that there is now: `kcat -J`'s line for each record."""
    done = subprocess.run(
        [
            "kcat",
            "-C",
            "-b",
            bootstrap_server,
            "-t",
            topic,
            "-p",
            str(partition),
            "-o",
            start,
            "-e",
            "-q",
            "-J",
        ],
        capture_output=True,
        check=True,
        timeout=TIMEOUT_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout.decode().splitlines()


def consume(bootstrap_server: str, topic: str, **how: Any) -> list[dict[str, Any]]:
    """Read the same as JSON objects."""
    return [json.loads(line) for line in consume_lines(bootstrap_server, topic, **how)]
