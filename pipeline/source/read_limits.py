"""Limits of a trigger as Spark 4.2 passes them; in Spark 4.1 each trigger reads everything, and the names are stand-ins."""

from __future__ import annotations

__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError:
    ReadAllAvailable = ReadLimit = ReadMaxRows = None  # type: ignore[misc, assignment]
    SupportsTriggerAvailableNow = object  # type: ignore[misc, assignment]
