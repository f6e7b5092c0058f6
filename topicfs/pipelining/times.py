"""A column of milliseconds as text: any number of them, since records may claim any time."""

from __future__ import annotations

_LAST_DATE = 253_402_300_799_999
"""Beyond the year 9999 the number is printed as it is."""


def as_time(column: str) -> str:
    """The column under its own name, as SQL: 2026-01-02T03:04:05.678Z."""
    return (
        f"CASE WHEN {column} BETWEEN 0 AND {_LAST_DATE} "
        f"THEN date_format(timestamp_millis({column}), \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\") "
        f"ELSE string({column}) END AS {column}"
    )
