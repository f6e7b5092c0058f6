"""The state of a mount as metrics show it: apart from what loads Prometheus' library."""

from __future__ import annotations

from typing import NamedTuple


class MountGauges(NamedTuple):
    """The state of a mount at one moment."""

    open_files: int
    waiting_reads: int
    waiting_reads_limit: int
