"""Moves topics between a data directory and the log directories of a stopped Apache Kafka broker.

`handover.py` moves topics to a broker, in three phases. `takeover.py` moves topics from a broker. Both copy a
partition either completely or not at all (`partition_copy.py`), leave the source unchanged, and can be repeated after
an interruption. `positions.py` and `handover_positions.py` move the positions of groups. `cluster.py` is the client
of a running cluster.
"""
