"""Read JSON payloads of a topic into a Polars data frame, and sum them by key.

    python examples/frame_of_polars.py DATA TOPIC

DATA is a data directory, a mount or kafka://host:9092. Values look like {"amount": 2}. The program needs: pip install
'topicfs[arrow]' polars
"""

from __future__ import annotations

import sys

import polars as pl

import topicfs


def main(data: str, topic: str) -> None:
    """Print the sum of each key."""
    with topicfs.open(data, read_only=True) as topics:
        records = pl.DataFrame(topics[topic].arrow())
    amounts = records.select(
        pl.col("key").cast(pl.String),
        pl.col("value").cast(pl.String).str.json_decode(pl.Struct({"amount": pl.Int64})).struct.unnest(),
    )
    for key, amount in amounts.group_by("key").sum().sort("key").iter_rows():
        print(f"{key}\t{amount}")


if __name__ == "__main__":
    main(*sys.argv[1:])
