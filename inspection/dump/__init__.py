"""Files of a log directory as text, byte for byte what kafka-dump-log (DumpLogSegments) prints.

`files` walks the files, `log` prints segments, `decoders` records of coordinators, `indexes` the other files;
`report` gathers the findings, `options` has the tool's flags.
"""
