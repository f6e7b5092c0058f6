"""Query a topic with SQL: how often each key occurred since yesterday, without Spark and without a copy of the topic.

    python examples/query_with_duckdb.py DATA TOPIC

DATA is a data directory, a mount or kafka://host:9092. The program needs: pip install 'topicfs[arrow]' duckdb
"""

from __future__ import annotations

import sys

import duckdb

import topicfs


def main(data: str, topic: str) -> None:
    """Print a line for each key, the most frequent first."""
    with topicfs.open(data, read_only=True) as topics, duckdb.connect() as connection:
        connection.register("records", topics[topic].arrow(start="@yesterday"))
        found = connection.sql(
            """
            SELECT decode(key) AS name, count(*) AS records, max(timestamp) AS newest
            FROM records WHERE key IS NOT NULL GROUP BY key ORDER BY records DESC, name
            """
        )
        for name, records, _newest in found.fetchall():
            print(f"{name}\t{records}")


if __name__ == "__main__":
    main(*sys.argv[1:])
