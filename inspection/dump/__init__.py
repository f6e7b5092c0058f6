"""Files of a log directory as text, byte for byte what kafka-dump-log (DumpLogSegments) prints.

`files` walks the files named and lists those of no known kind, `log` prints segments, `decoders` what the records
of coordinators' topics say, `indexes` the files beside segments and what of these disagrees with the segment,
`report` gathers the disagreements in Kafka's order, `options` are the tool's flags.
"""
