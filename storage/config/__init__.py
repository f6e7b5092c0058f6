"""Settings: their names, their valid values, and the files they are read from.

Names, defaults, units and validation are Kafka's, so that a `server.properties` and a topic's overrides mean
here what they mean to a broker. Each setting has one row, in the table of `topic.py` or of `broker.py`;
`kinds.py` knows how a kind of value is read and printed, `properties.py` the Java file format. Rules: kafka-storage.md#settings.
"""
