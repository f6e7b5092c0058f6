"""Moving topics between a data directory and the log directory of a stopped Apache Kafka broker.

`handover.py` puts our topics under a broker (in three phases, for the broker itself must make the topics),
`takeover.py` a broker's under us. Both copy partitions by `partition_copy.py`, whole or not at all, and can be run
again after an interruption at any point; the source stays as it is. Committed positions of groups go along:
`positions.py` reads them from files, and what else is kept of groups; `handover_positions.py` commits them in the new
cluster. `cluster.py` is the client of a running cluster.
"""
