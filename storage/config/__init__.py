"""Settings: their names, their valid values, and the files they are read from (kafka-storage.md#settings).

All is as in Kafka, so that a `server.properties` and a topic's overrides mean what they mean to a broker. Each
setting is a row in the table of `topic.py`, `broker.py`, `group.py` or `share_group.py`.
"""
