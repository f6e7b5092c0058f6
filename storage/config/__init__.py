"""Settings: their names, their valid values, and the files from which they are read (kafka-storage.md#settings).

Names and values are Kafka's, so that a `server.properties` and a topic's overrides mean the same as to a broker. Each
setting is a row in the table of `topic.py`, `broker.py`, `group.py` or `share_group.py`.
"""
