"""Moving topics between a data directory and the log directory of a stopped Apache Kafka broker.

`handover.py` moves topics to a broker, in three phases, and `takeover.py` from one. Both copy partitions whole or not
at all (`partition_copy.py`), keep the source as it is, and can be run again after an interruption. `positions.py` and
`handover_positions.py` move the positions of groups. `cluster.py` is the client of a running cluster.
"""
