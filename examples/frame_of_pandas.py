"""Read yesterday's records of one key into a pandas data frame, and count them by the hour.

    python examples/frame_of_pandas.py DATA TOPIC KEY

DATA is a data directory, a mount or kafka://host:9092. The program needs: pip install 'topicfs[arrow]' pandas
"""

from __future__ import annotations

import sys

import topicfs


def main(data: str, topic: str, key: str) -> None:
    """Print how many records each hour had, in UTC."""
    with topicfs.open(data, read_only=True) as topics:
        frame = topics[topic].arrow(start="@yesterday", stop="@today").read_pandas()
    frame = frame[frame["key"] == key.encode()]
    for hour, count in frame.groupby(frame["timestamp"].dt.hour).size().items():
        print(f"{hour:02} h\t{count}")


if __name__ == "__main__":
    main(*sys.argv[1:])
