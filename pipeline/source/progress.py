"""How far a streaming query is behind, from the progress that Spark reports of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipeline.source.offsets import decode_stream_offset
from pipeline.source.planning import lag
from storage.model import TopicPartition

_NAME = "PythonMicroBatchStream"
"""How Spark's name for every stream of a Python data source begins, behind its package."""


def lag_by_partition(progress: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Offsets left to read, a partition, over all sources of a query that are of this format.

    `progress` is what `StreamingQueryProgress.json` says, read: each source tells where its batch ended and where the
    partitions did (`reportLatestOffset`). Sources that tell neither, or in another form, are passed over.
    """
    found: dict[TopicPartition, int] = {}
    for source in progress.get("sources", []):
        if _NAME in source.get("description", ""):
            end, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
            found.update(lag(end, latest))
    return found


def _offsets(told: Any) -> dict[TopicPartition, int]:
    """Offsets come as an object, or as its text; none before the first batch, or in another source's form."""
    try:
        return decode_stream_offset(json.loads(told) if isinstance(told, str) else told).offsets
    except (AttributeError, TypeError, ValueError):
        return {}
