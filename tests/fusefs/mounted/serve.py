"""A mount's daemon in a process of its own: `python serve.py '{"directory": …}'`, options as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from fusefs.appending.handle import Acks
from fusefs.daemon import MountOptions, run
from storage.config.broker import EngineConfig
from storage.model import Isolation

READ: dict[str, Any] = {
    "directory": Path,
    "mountpoint": Path,
    "log_file": Path,
    "acks": Acks.parse,
    "isolation": Isolation,
    "engine": lambda fields: EngineConfig(**fields),
}


def options(text: str) -> MountOptions:
    """Options of a mount from JSON."""
    return MountOptions(
        **{name: READ.get(name, lambda value: value)(value) for name, value in json.loads(text).items()}
    )


if __name__ == "__main__":
    sys.exit(run(options(sys.argv[1])))
