"""Files of a log directory in the text of kafka-dump-log (DumpLogSegments), byte for byte.

`files` walks the files named and tells which of them nobody knows, `log` prints segments, `indexes` the files beside
them and what of these disagrees with the segment, `report` gathers the disagreements in Kafka's order, `java` prints
what Java prints, `options` are the tool's flags.
"""
